// SubjectSummary, SubjectOpening: the record that a ForgetSubject ends with, and what opens its salted values.
//
// Equation:  an in-toto Statement v1 with predicateType https://lethe.dev/forget-subject/v1, canonical JSON as in
//            statement.h. subject = HMAC-SHA-256(salt, "subject\0" || label); pseudonym of a session that failed =
//            HMAC-SHA-256(salt, "session\0" || session id): another one than in the session's own records, so that
//            nobody but its owner joins the two. forgotten.root = RFC 6962 root over the leaf hashes of the sessions'
//            forget records, ascending; failed.root = the same over pseudonym || reason, ascending.
// Shapes:    digests 32 bytes; the statement does not grow with the number of sessions.
// Units:     counts in sessions, num_inputs in inputs.
// Requires:  none.
// Rejects:   Write… and Parse…: INVALID_ARGUMENT naming the field: what statement.h rejects, counts that contradict
//            each other, a root that is the empty tree's with a count above 0 or another without. Parse… also: any
//            bytes but Write…'s of the same values.
// Effects:   the opening's salt wipes itself.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_SUBJECT_SUMMARY_H_
#define LETHE_AUDIT_CERTIFICATE_SUBJECT_SUMMARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/certificate/statement.h"
#include "audit/crypto/secret.h"
#include "audit/crypto/sha256.h"

namespace lethe::audit {

inline constexpr char kSubjectPredicateType[] = "https://lethe.dev/forget-subject/v1";
inline constexpr char kSubjectOpeningType[] = "https://lethe.dev/forget-subject-opening/v1";
inline constexpr char kForgottenSubjectName[] = "forgotten-subject";
// The requestId of a session's record that was made for a job: this and the job.
inline constexpr char kSubjectRequestPrefix[] = "forget-subject-";
inline constexpr size_t kSubjectSessionsMax = size_t{1} << 20;

// A session that still holds the label, and why: an ErrorInfo reason, "DERIVED_TOKENS".
struct FailedSession {
  Sha256Digest pseudonym{};
  std::string reason;
};

struct ReasonCount {
  std::string reason;
  uint64_t count = 0;
};

struct SubjectSummary {
  Sha256Digest subject_digest{};
  std::string log_origin;
  std::string job;
  std::string nonce;  // the client's bytes, echoed
  std::string request_id;
  std::string issued_at;  // informational
  Sha256Digest binary{};  // SHA-256 of the server binary
  std::string build;      // as EngineIdentity
  std::string algorithm;  // likewise
  DerivedPolicy derived_policy = DerivedPolicy::kFail;
  uint64_t num_examined = 0;         // sessions that were looked at for the label
  CommittedSet forgotten;            // sessions with a record
  uint64_t num_inputs = 0;           // that these records forgot
  CommittedSet failed;               // sessions in which nothing changed
  std::vector<ReasonCount> reasons;  // of the failed ones, by name
  uint64_t num_deleted = 0;          // held the label, and were deleted by others before their turn
  uint64_t num_unserved = 0;         // so damaged that they have no name: nothing is said of them
};

struct SubjectOpening {
  Secret32 salt;
  Sha256Digest leaf_hash{};           // the summary that it opens
  std::vector<Sha256Digest> records;  // leaf hashes, ascending
  std::vector<FailedSession> failed;  // by pseudonym
};

Sha256Digest CommitSubject(const Secret32& salt, absl::string_view label);
Sha256Digest SubjectPseudonym(const Secret32& salt, absl::string_view session_id);
// Sorts what it is given.
CommittedSet CommitRecords(std::vector<Sha256Digest> leaf_hashes);
CommittedSet CommitFailed(std::vector<FailedSession> failed);
// How often each reason occurs, by name.
std::vector<ReasonCount> CountReasons(absl::Span<const FailedSession> failed);

absl::StatusOr<std::string> WriteSubjectSummary(const SubjectSummary& summary);
absl::StatusOr<SubjectSummary> ParseSubjectSummary(absl::string_view bytes);

absl::StatusOr<std::string> WriteSubjectOpening(const SubjectOpening& opening);
absl::StatusOr<SubjectOpening> ParseSubjectOpening(absl::string_view bytes);

// True when the bytes are canonical JSON with this predicate type.
bool IsSubjectSummary(absl::string_view payload);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_SUBJECT_SUMMARY_H_
