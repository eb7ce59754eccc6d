// FinishJob, PrintJob: waits for a ForgetSubject, keeps its summary and certificates, and shows how it stands.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   the server's errors; as subject_files.h.
// Effects:   FinishJob with a directory writes the summary and the certificate of every session that still exists, and
//            says on the error stream how many do not.
// Numerics:  none.
// Threads:   as Client.
#ifndef LETHE_CLIENT_COMMANDS_SUBJECT_JOB_H_
#define LETHE_CLIENT_COMMANDS_SUBJECT_JOB_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/commands/context.h"

namespace lethe::client {

struct FinishOptions {
  std::string job_id;
  bool wait = false;      // until the job is done
  std::string directory;  // "" = keep nothing
};

absl::StatusOr<v1::GetSubjectJobResponse> FinishJob(Context& context, const FinishOptions& options);

absl::StatusOr<std::vector<v1::SubjectOutcome>> ListAllOutcomes(Client& client,
                                                                const std::string& job_id);

void PrintJob(Context& context, const v1::SubjectJob& job);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_SUBJECT_JOB_H_
