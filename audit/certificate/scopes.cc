#include "audit/certificate/scopes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lethe::audit {

std::vector<std::string> ResidualScopes(const ScopeFacts& facts) {
  std::vector<std::string> scopes = {kScopeBackups,      kScopeClientCopies, kScopeExportedStates,
                                     kScopeModelWeights, kScopeOpenings,     kScopeProxyLogs,
                                     kScopeTokenIdGaps};
  if (facts.derived_tokens_kept) scopes.emplace_back(kScopeDerivedKept);
  if (facts.inputs_evicted) scopes.emplace_back(kScopeEvicted);
  if (facts.memory_wiped) {
    for (const char* scope : {kScopeDiskBeneath, kScopeRegisters, kScopeSwap, kScopeTransport}) {
      scopes.emplace_back(scope);
    }
  } else {
    scopes.emplace_back(kScopePhysicalErasure);
  }
  std::sort(scopes.begin(), scopes.end());
  return scopes;
}

absl::Status CheckResidualScopes(absl::Span<const std::string> scopes, const ScopeFacts& facts) {
  const std::vector<std::string> want = ResidualScopes(facts);
  for (size_t i = 0; i < want.size(); ++i) {
    if (i >= scopes.size() || scopes[i] != want[i]) {
      return absl::InvalidArgumentError(absl::StrCat("residual: entry ", i, ": want ", want[i]));
    }
  }
  if (scopes.size() != want.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("residual: want ", want.size(), " entries, got ", scopes.size()));
  }
  return absl::OkStatus();
}

}  // namespace lethe::audit
