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
// What a disk, its controller or the file system keep of blocks that were overwritten or freed.
inline constexpr char kScopeDiskBeneath[] = "disk-beneath-the-file-system";
// The state is that of a history without what selections evicted; those were chosen in the presence of
// inputs that may have been forgotten since.
inline constexpr char kScopeEvicted[] = "evicted-inputs";
inline constexpr char kScopeExportedStates[] = "exported-states";
inline constexpr char kScopeModelWeights[] = "model-weights";
inline constexpr char kScopeOpenings[] = "openings-and-bundles-handed-out";
inline constexpr char kScopePhysicalErasure[] = "physical-erasure-of-memory-and-disk";
inline constexpr char kScopeProxyLogs[] = "proxy-logs";
// Also the copies that a processor or the kernel keeps of them while a thread is interrupted.
inline constexpr char kScopeRegisters[] = "registers-and-kernel-memory";
inline constexpr char kScopeSwap[] = "swap-and-hypervisor";
inline constexpr char kScopeTokenIdGaps[] = "token-id-gaps";
// Of calls that were refused or broken off before they were read whole, and inside TLS.
inline constexpr char kScopeTransport[] = "transport-buffers";

struct ScopeFacts {
  bool derived_tokens_kept = false;
  bool inputs_evicted = false;
  // The server wipes what its memory and its store held (server/wiping): then four named places are left out instead of
  // physical erasure as a whole.
  bool memory_wiped = false;
};

// The scopes that every record names, and those of the facts; sorted.
std::vector<std::string> ResidualScopes(const ScopeFacts& facts);

absl::Status CheckResidualScopes(absl::Span<const std::string> scopes, const ScopeFacts& facts);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_SCOPES_H_
