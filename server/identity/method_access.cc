#include "server/identity/method_access.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "server/error/error_info.h"

namespace lethe {
namespace {

constexpr uint8_t kUser = static_cast<uint8_t>(Role::kUser);
constexpr uint8_t kEraser = static_cast<uint8_t>(Role::kEraser);
constexpr uint8_t kAuditor = static_cast<uint8_t>(Role::kAuditor);

constexpr MethodAccess kTable[] = {
    // SessionService. Sizes and counts are no content; inputs and digests (which say whether a guess is right) are: an auditor
    // gets those of a state that its owner disclosed to it (server/certification/disclosure.h).
    {"CreateSession", kUser},
    {"GetSession", kUser | kEraser | kAuditor},
    {"ListSessions", kUser | kEraser | kAuditor},
    {"DeleteSession", kUser},
    {"Append", kUser},
    {"ListInputs", kUser | kAuditor},
    {"GetStateDigest", kUser | kAuditor},
    {"ExportSession", kUser},
    {"ImportSession", kUser},
    // GenerationService.
    {"Generate", kUser},
    // ForgettingService.
    {"Forget", kEraser},
    {"ForgetSubject", kEraser},
    {"GetSubjectJob", kEraser | kAuditor},
    {"WatchSubjectJob", kEraser | kAuditor},
    {"ListSubjectJobs", kEraser | kAuditor},
    {"ListSubjectOutcomes", kEraser},
    {"DeleteSubjectJob", kEraser},
    // CertificationService. A bundle, and a record's opening, are content too.
    {"Certify", kUser},
    {"ListPartition", kUser},
    {"GetCertificate", kUser | kEraser | kAuditor},
    // AuditService: salted hashes and signatures.
    {"GetLog", kAllRoles},
    {"ListRecords", kUser | kEraser | kAuditor},
    {"GetInclusionProof", kUser | kEraser | kAuditor},
    {"GetConsistencyProof", kUser | kEraser | kAuditor},
    // MemoryService.
    {"CreateVectorSession", kUser},
    {"AppendVectors", kUser},
    {"Read", kUser},
    {"Partition", kUser},
    {"ListVectors", kUser | kAuditor},
    {"EvictReserve", kUser},
    // ModelService: of no tenant.
    {"ListModels", kAllRoles},
    {"GetModel", kAllRoles},
    {"Tokenize", kUser},
    {"Detokenize", kUser},
};

std::string RoleNames(uint8_t roles) {
  std::string names;
  for (const NamedRole& role : kNamedRoles) {
    if ((roles & static_cast<uint8_t>(role.role)) == 0) continue;
    absl::StrAppend(&names, names.empty() ? "" : ",", role.name);
  }
  return names;
}

absl::Status RoleRequiredError(absl::string_view what, uint8_t roles) {
  const std::string names = RoleNames(roles);
  return WithErrorInfo(absl::PermissionDeniedError(absl::StrCat(
                           what, ": the credential lacks the role: want one of ", names)),
                       {"ROLE_REQUIRED", {{"roles", names}}});
}

}  // namespace

absl::Span<const MethodAccess> AllMethodAccess() { return kTable; }

uint8_t RolesFor(absl::string_view method) {
  for (const MethodAccess& access : kTable) {
    if (access.method == method) return access.roles;
  }
  return 0;
}

absl::Status CheckRole(absl::string_view method, const Principal& principal) {
  const uint8_t roles = RolesFor(method);
  if ((principal.roles & roles) != 0) return absl::OkStatus();
  return RoleRequiredError(method, roles);
}

}  // namespace lethe
