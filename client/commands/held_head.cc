#include "client/commands/held_head.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/certificate_files.h"
#include "client/commands/files.h"

#include "audit/log/tlog_proof.h"
#include "kernels/base/status_macros.h"

namespace lethe::client {

absl::StatusOr<audit::VerifierKey> TrustedLogKey(absl::string_view note,
                                                 const audit::TrustStore& trust) {
  const absl::string_view origin = note.substr(0, note.find('\n'));
  for (const audit::VerifierKey& vkey : trust.log_keys) {
    if (vkey.name == origin) return vkey;
  }
  return absl::DataLossError(
      "no trusted key: the checkpoint is of a log that the trust file lacks");
}

absl::StatusOr<audit::Checkpoint> OpenTrustedHead(absl::string_view note,
                                                  const audit::TrustStore& trust) {
  LETHE_ASSIGN_OR_RETURN(const audit::VerifierKey vkey, TrustedLogKey(note, trust));
  absl::StatusOr<audit::Checkpoint> head = audit::OpenCheckpoint(note, vkey);
  if (!head.ok()) return absl::DataLossError(head.status().message());
  LETHE_ASSIGN_OR_RETURN(const audit::SignedNote parsed, audit::ParseNote(note));
  for (const audit::WitnessKey& witness : trust.witnesses) {
    const absl::Status cosigned = audit::VerifyCosignature(parsed, witness);
    if (!cosigned.ok()) return absl::DataLossError(cosigned.message());
  }
  return head;
}

absl::StatusOr<audit::Checkpoint> ReadHeldHead(const std::string& path,
                                               const audit::TrustStore& trust) {
  std::error_code error;
  const bool is_certificate = std::filesystem::is_directory(path, error);
  LETHE_ASSIGN_OR_RETURN(std::string note,
                         ReadFile(is_certificate ? absl::StrCat(path, "/", kProofFile) : path));
  if (absl::StartsWith(note, "c2sp.org/tlog-proof@")) {
    absl::StatusOr<audit::TlogProof> proof = audit::ParseTlogProof(note);
    if (!proof.ok()) {
      return absl::DataLossError(absl::StrCat(path, ": ", proof.status().message()));
    }
    note = std::move(proof->checkpoint);
  }
  absl::StatusOr<audit::Checkpoint> head = OpenTrustedHead(note, trust);
  if (!head.ok()) return absl::DataLossError(absl::StrCat(path, ": ", head.status().message()));
  return head;
}

}  // namespace lethe::client
