// WriteSubject, ReadSubject: the summary of a ForgetSubject and its sessions' certificates as files in a directory.
//
//   envelope.json, proof.tlog, opening.json   the summary
//   sessions/SESSION/                         the certificate of each session (certificate_files.h)
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   as certificate_files.h.
// Effects:   as certificate_files.h.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_COMMANDS_SUBJECT_FILES_H_
#define LETHE_CLIENT_COMMANDS_SUBJECT_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "audit/certificate/verify.h"
#include "lethe/v1/certification.pb.h"
#include "lethe/v1/forgetting.pb.h"

namespace lethe::client {

absl::Status WriteSummary(const std::string& directory, const v1::SubjectSummary& summary);
absl::Status WriteSessionCertificate(const std::string& directory, const std::string& session_id,
                                     const v1::Certificate& certificate);

// The certificates under `directory`/sessions, by session id; none where that is not there.
absl::StatusOr<std::vector<audit::CertificateFiles>> ReadSessionCertificates(
    const std::string& directory);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_SUBJECT_FILES_H_
