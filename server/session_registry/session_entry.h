// SessionEntry, SessionFork: a session, of a model or of vectors, as the server serves it: the state,
// its lock, its forks, its records.
//
// Equation:  none.
// Shapes:    none.
// Units:     times in microseconds since the epoch (informational).
// Requires:  lock order: SessionEntry::mutex, then SessionFork::mutex of its forks in list order,
//            then a compute slot (server/scheduler), then SessionEntry::info_mutex.
// Rejects:   Live…: ABORTED, reason SESSION_DELETED, once the session was deleted; what Availability says. CheckHas…, and
//            Live… of one kind: FAILED_PRECONDITION, reason WRONG_SESSION_KIND.
//            BeginWrite: ABORTED, reason SESSION_BUSY, while another writer runs. AdmitWriter: as SubjectFence::Check.
// Effects:   none.
// Numerics:  none.
// Threads:   safe under the locks named at each member.
#ifndef LETHE_SERVER_SESSION_REGISTRY_SESSION_ENTRY_H_
#define LETHE_SERVER_SESSION_REGISTRY_SESSION_ENTRY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "audit/certificate/recorder.h"
#include "kernels/base/mutex.h"
#include "server/identity/principal.h"
#include "server/journal/session_journal.h"
#include "server/scheduler/fair_mutex.h"
#include "server/session/session.h"
#include "server/session_registry/request_table.h"
#include "server/session_registry/subject_fence.h"
#include "server/vector_session/vector_session.h"

namespace lethe {

// Of a steady clock, as SessionEntry::last_use_us.
int64_t NowSteadyMicros();

// ABORTED, reason SESSION_DELETED.
absl::Status SessionDeletedError();

// DATA_LOSS, reason SESSION_QUARANTINED, and FAILED_PRECONDITION, reason MODEL_NOT_LOADED.
absl::Status QuarantinedError(const std::string& session_id);
absl::Status ModelNotLoadedError(const std::string& session_id, const std::string& model);

// The sum of the Forgets that a history went through; a stream compares two to notice one in
// between.
struct HistoryMark {
  uint64_t epoch = 0;         // Forgets so far
  int64_t num_forgotten = 0;  // inputs that they removed
};

// A copy of the session for one Generate with remember = false.
struct SessionFork {
  FairMutex mutex;
  std::unique_ptr<Session> session ABSL_GUARDED_BY(mutex);  // null once the session was deleted
  HistoryMark mark ABSL_GUARDED_BY(mutex);
};

// Where a record of the session stands in the audit log.
struct RecordRef {
  uint64_t seq = 0;
  audit::RecordKind kind = audit::RecordKind::kForget;
  uint64_t leaf_index = 0;
  audit::Sha256Digest leaf_hash{};
  HistoryMark mark;               // of the state that it certifies
  int64_t num_inputs = 0;         // of that state
  bool partition_proved = false;  // certify: of every head
};

// Sizes and counts of a session; never content. Published after every change, so that reading them
// never waits for an evaluation.
struct SessionInfo {
  int64_t num_inputs = 0;
  int64_t num_forgotten = 0;
  int64_t state_bytes = 0;
  int64_t snapshot_bytes = 0;
  int64_t stored_input_bytes = 0;
  int64_t num_snapshots = 0;
  int64_t num_support_vectors = 0;
  uint64_t audit_seq = 0;  // newest record, 0 = none
  // Of a vector session: changes so far, solves on the slow canonical way.
  uint64_t epoch = 0;
  int64_t num_slow_solves = 0;
  int64_t num_exports = 0;
};

struct SessionEntry {
  SessionEntry(std::string id, std::string name, std::unique_ptr<Session> new_session,
               int64_t now_us, std::string owner = kLocalTenant);
  SessionEntry(std::string id, std::string name, std::unique_ptr<VectorSession> new_session,
               int64_t now_us, std::string owner = kLocalTenant);
  using RestoreFunction = std::function<absl::StatusOr<std::unique_ptr<AnySession>>()>;
  // Of a stored session that is not in memory; its `restore`, set next, brings it there. One that cannot be used has
  // none, and `unavailable` says why.
  struct Stored {
    std::string id;
    std::string tenant = kLocalTenant;
    std::string name;
    int64_t create_time_us = 0;
    std::shared_ptr<const Model> model;
    SessionOptions options;
    std::optional<VectorOptions> vector_options;
    std::unique_ptr<SessionJournal> journal;
    absl::Status unavailable;
  };
  explicit SessionEntry(Stored stored);

  const std::string session_id;
  const std::string tenant;  // whose it is: nobody else learns that it exists
  const std::string display_name;
  const int64_t create_time_us;
  const std::shared_ptr<const Model> model;  // null: a vector session
  const SessionOptions options;              // of a model's session
  const std::optional<VectorOptions> vector_options;

  // OK, or why the session cannot be used, and nothing but DeleteSession applies to it: DATA_LOSS, reason
  // SESSION_QUARANTINED; FAILED_PRECONDITION, reason MODEL_NOT_LOADED.
  absl::Status Availability() const;
  // What is stored is damaged: from now on the session is not served.
  void Quarantine(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // What is stored of a session that is not in memory can be read; DATA_LOSS and quarantine otherwise.
  absl::Status CheckStored() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // The session was deleted: nothing of it is left here.
  void Clear() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  absl::Status CheckHasModel() const;
  absl::Status CheckHasVectors() const;
  // The session, unless it was deleted. One that is stored only is evaluated first, which needs no compute slot: a
  // caller that holds one keeps it.
  absl::StatusOr<AnySession*> LiveSession() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::StatusOr<Session*> LiveModelSession() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::StatusOr<VectorSession*> LiveVectorSession() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // At most one remembered Generate or Append runs at a time: their tokens would interleave.
  absl::Status BeginWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void EndWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { writing = false; }
  // To be held by whoever brings inputs in under a label, into the session or a fork of it; null without a label.
  absl::StatusOr<std::shared_ptr<LabelledWriter>> AdmitWriter(const std::string& subject)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void StopWriters(absl::string_view subject) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // The forks that still run; forgets the others.
  std::vector<std::shared_ptr<SessionFork>> LiveForks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // True when `ref` is the newest record and the state is still the one that it is about.
  bool IsPresent(const RecordRef& ref) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Makes the present sizes visible to Info. PublishLength updates the length alone (every token).
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void PublishLength() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  SessionInfo Info() const;
  // leaf_index of every record; as Info, this never waits.
  std::vector<uint64_t> RecordLeaves() const;
  // Of the last Live… call, or of the entry's making, steady clock.
  int64_t last_use_us() const { return last_use_us_; }

  FairMutex mutex;
  std::unique_ptr<AnySession> session
      ABSL_GUARDED_BY(mutex);  // null once deleted, and until `restore`
  // Null: no label is ever kept out. Set before anybody else sees the entry.
  std::shared_ptr<const SubjectFence> fence;
  // Null: the session lives in memory alone. Set before anybody else sees the entry.
  std::unique_ptr<SessionJournal> journal;
  RestoreFunction restore ABSL_GUARDED_BY(mutex);
  // Unless empty, what has to be done before a restored session is shown to anybody; on its error the session is not, and
  // the next call tries again.
  std::function<absl::Status(SessionEntry*)> on_restored ABSL_GUARDED_BY(mutex);
  HistoryMark mark ABSL_GUARDED_BY(mutex);
  bool writing ABSL_GUARDED_BY(mutex) = false;
  int64_t num_exports ABSL_GUARDED_BY(mutex) = 0;
  RequestTable requests ABSL_GUARDED_BY(mutex);
  // The store failed to take a row of `requests`: whoever stores inputs stores the whole table first.
  bool requests_unstored ABSL_GUARDED_BY(mutex) = false;
  std::vector<std::weak_ptr<SessionFork>> forks ABSL_GUARDED_BY(mutex);
  std::vector<std::weak_ptr<LabelledWriter>> writers ABSL_GUARDED_BY(mutex);
  audit::SessionRecords records ABSL_GUARDED_BY(mutex);
  std::vector<RecordRef> record_refs ABSL_GUARDED_BY(mutex);  // by seq, from 1

 private:
  std::atomic<int64_t> last_use_us_{NowSteadyMicros()};
  mutable Mutex info_mutex_;
  SessionInfo info_ ABSL_GUARDED_BY(info_mutex_);
  std::vector<uint64_t> record_leaves_ ABSL_GUARDED_BY(info_mutex_);
  absl::Status unavailable_ ABSL_GUARDED_BY(info_mutex_);
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_SESSION_ENTRY_H_
