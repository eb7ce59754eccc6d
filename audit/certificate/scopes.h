// Residual scopes: the names under which a statement says what it does not cover (design C7).
//
// Equation:  none.
// Shapes:    names are lower-case words joined by hyphens.
// Units:     none.
// Requires:  none.
// Rejects:   CheckResidualScopes: INVALID_ARGUMENT naming the first scope that must be listed and
//            is not, or the first that is unknown or out of order.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_SCOPES_H_
#define LETHE_AUDIT_CERTIFICATE_SCOPES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace lethe::audit {

inline constexpr char kScopeBackups[] = "backups-not-expired";
inline constexpr char kScopeClientCopies[] = "client-copies";
inline constexpr char kScopeDerivedKept[] = "derived-tokens-kept";
// The state is that of a history without what selections evicted; those were chosen in the presence of
// inputs that may have been forgotten since.
inline constexpr char kScopeEvicted[] = "evicted-inputs";
inline constexpr char kScopeExportedStates[] = "exported-states";
inline constexpr char kScopeModelWeights[] = "model-weights";
inline constexpr char kScopeOpenings[] = "openings-and-bundles-handed-out";
inline constexpr char kScopePhysicalErasure[] = "physical-erasure-of-memory-and-disk";
inline constexpr char kScopeProxyLogs[] = "proxy-logs";
inline constexpr char kScopeTokenIdGaps[] = "token-id-gaps";

struct ScopeFacts {
  bool derived_tokens_kept = false;
  bool inputs_evicted = false;
};

// The scopes that every record names, and those of the facts; sorted. Physical erasure is always among them: the session
// store is erased, but the process's memory is not shown to be.
std::vector<std::string> ResidualScopes(const ScopeFacts& facts);

absl::Status CheckResidualScopes(absl::Span<const std::string> scopes, const ScopeFacts& facts);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_SCOPES_H_
