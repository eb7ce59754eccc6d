#include "audit/certificate/scopes.h"

#include "absl/strings/str_cat.h"

namespace lethe::audit {

std::vector<std::string> ResidualScopes(bool derived_tokens_kept) {
  std::vector<std::string> scopes = {kScopeBackups, kScopeClientCopies};
  if (derived_tokens_kept) scopes.emplace_back(kScopeDerivedKept);
  for (const char* scope : {kScopeExportedStates, kScopeModelWeights, kScopeOpenings,
                            kScopePhysicalErasure, kScopeProxyLogs, kScopeTokenIdGaps}) {
    scopes.emplace_back(scope);
  }
  return scopes;
}

absl::Status CheckResidualScopes(absl::Span<const std::string> scopes, bool derived_tokens_kept) {
  const std::vector<std::string> want = ResidualScopes(derived_tokens_kept);
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
