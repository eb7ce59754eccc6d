// SubjectJob: a ForgetSubject as it stands, and as the rows of the session store that it goes on from after a kill.
//
// Equation:  ApplyRow over the rows of EncodeStart, EncodePlan (once) and EncodeOutcome (per session of the plan, in its
//            order) gives the job at work; EncodeDone alone gives it done.
// Shapes:    docs/data-directory.md. Rows of version 1, which name no tenant, are of one that is local's.
// Units:     times in microseconds since the epoch; inputs; sessions.
// Requires:  none.
// Rejects:   ApplyRow: DATA_LOSS for bytes that no Encode… writes, and for a row out of its order.
// Effects:   the label is overwritten when the job goes, and by DropLabel; a done job has none.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_FORGET_SUBJECT_SUBJECT_JOB_H_
#define LETHE_SERVER_FORGET_SUBJECT_SUBJECT_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "audit/certificate/subject_summary.h"
#include "audit/crypto/secret.h"
#include "server/identity/principal.h"
#include "server/session/forget.h"
#include "server/session_registry/request_table.h"

namespace lethe {

enum class JobStage : uint64_t {
  kExamining = 1,   // which sessions hold the label
  kForgetting = 2,  // one after the other
  kDone = 3,        // the summary is in the log, the label is gone
};

enum class OutcomeKind : uint64_t {
  kForgotten = 1,
  kFailed = 2,   // nothing changed in the session
  kDeleted = 3,  // somebody deleted the session
  kNothingLeft =
      4,  // its inputs under the label went otherwise: taken back, or forgotten by somebody
};

struct SubjectOutcome {
  std::string session_id;
  OutcomeKind kind = OutcomeKind::kForgotten;
  std::string reason;  // kFailed: of the error
  // kForgotten: its record, and what that forgot.
  uint64_t seq = 0;
  audit::Sha256Digest leaf_hash{};
  int64_t num_inputs = 0;
};

struct SubjectJob {
  SubjectJob() : salt(audit::Secret32::Random()) {}
  ~SubjectJob() { DropLabel(); }
  SubjectJob(const SubjectJob&) = default;
  SubjectJob& operator=(const SubjectJob&) = default;
  void DropLabel();

  std::string job_id;  // 26 characters as a session id's
  std::string tenant = kLocalTenant;
  std::string label;  // empty once done
  DerivedPolicy policy = DerivedPolicy::kFail;
  std::string nonce;
  RequestKey request;
  audit::Secret32 salt;  // of the summary
  int64_t start_us = 0;
  int64_t end_us = 0;
  JobStage stage = JobStage::kExamining;
  int64_t num_examined = 0;
  int64_t num_unserved = 0;
  std::vector<std::string> plan;         // ids of the sessions that hold the label; empty once done
  std::vector<SubjectOutcome> outcomes;  // of the first sessions of the plan
  audit::Sha256Digest summary_leaf{};    // once done
};

std::string EncodeStart(const SubjectJob& job);
std::string EncodePlan(const SubjectJob& job);
std::string EncodeOutcome(const SubjectOutcome& outcome);
std::string EncodeDone(const SubjectJob& job);
absl::Status ApplyRow(absl::string_view bytes, SubjectJob* job);

// The statement of its summary, but for the log's origin; what opens it.
audit::SubjectSummary SummaryOf(const SubjectJob& job);
audit::SubjectOpening OpeningOf(const SubjectJob& job);

}  // namespace lethe

#endif  // LETHE_SERVER_FORGET_SUBJECT_SUBJECT_JOB_H_
