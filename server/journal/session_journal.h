// SessionJournal, RecordedChange: what one session keeps in the session store, and how its changes get there.
//
// Equation:  none.
// Shapes:    meta bodies are the caller's (server/session_registry/saved_session.h).
// Units:     token_ids.
// Requires:  the session's lock is held by whoever calls, FlushDrawn apart. NoteDrawn: the inputs behind the last noted
//            or stored one are drawn tokens of a running stream.
// Rejects:   what SessionStore rejects; on error the stored session is what it was.
// Effects:   AddInputs stores every input behind the last stored one, with the delta, synced. NoteDrawn remembers
//            drawn tokens; FlushDrawn, called by the thread that sends them, before it does, hands them over:
//            delivered tokens survive the process, and after a loss of power a prefix of them does. Inputs of an
//            Append or a prompt that is still coming in are stored by nobody until it is in whole.
// Numerics:  none. FlushDrawn: one transaction without a sync.
// Threads:   FlushDrawn safe, the rest under the session's lock.
#ifndef LETHE_SERVER_JOURNAL_SESSION_JOURNAL_H_
#define LETHE_SERVER_JOURNAL_SESSION_JOURNAL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "audit/crypto/sha256.h"
#include "kernels/base/mutex.h"
#include "server/journal/journal_state.h"

namespace lethe {

// What of the removal's result is to be stored.
struct RemovalContent {
  absl::Span<const uint64_t> removed_ids;  // ascending
  const Inputs& after;
  VectorRows vectors;    // after
  std::string snapshot;  // of the meta rows, after
};

// The first content of a session that was not created empty.
struct ImportContent {
  const Inputs& inputs;
  VectorRows vectors;
  std::string snapshot;  // of the meta rows
  std::string name;      // as Begin's
};

class SessionJournal {
 public:
  SessionJournal(SessionStore* store, int64_t number, JournalState state)
      : store_(store), number_(number), state_(std::move(state)) {}
  SessionJournal(const SessionJournal&) = delete;
  SessionJournal& operator=(const SessionJournal&) = delete;

  // The first snapshot of a new session, and, in the same transaction, a delta of another journal, under whose key the
  // session's name is kept too.
  absl::Status Begin(std::string snapshot, std::string name, SessionJournal* other,
                     std::string other_delta);
  // The same with inputs, and, unless null, in the place of what `replaced` holds: that goes in the same transaction, and
  // is erased.
  absl::Status BeginImported(const ImportContent& content, SessionJournal* replaced,
                             SessionJournal* other, std::string other_delta);
  // This snapshot alone, under a new key, in place of rows that are damaged. Keys that others may use stay.
  absl::Status StartOver(std::string snapshot);
  // Everything of the session goes, and is erased; with a delta of another journal likewise.
  absl::Status Destroy(SessionJournal* other, std::string other_delta);

  absl::Status AddMeta(std::string delta, Durability durability);
  absl::Status AddInputs(const Inputs& inputs, const VectorRows& vectors, std::string delta);
  void NoteDrawn(const Inputs& inputs);
  absl::Status FlushDrawn();
  // Removes inputs without a record: those that a lost client never got.
  absl::Status TakeBack(const RemovalContent& content);

  // Snapshots of the session's state (session.h), each sealed under a key of its own, behind those that are stored or
  // instead of them; what the process has written is not synced: a snapshot that is lost is only evaluated again. A removal
  // destroys those that were evaluated from what it removes.
  struct Snapshot {
    std::string body;
    uint64_t end_id = 0;  // behind the inputs that it was evaluated from
    int64_t rank = 0;     // their number
  };
  absl::Status AddSnapshots(std::vector<Snapshot> snapshots, bool instead);
  absl::Status DropSnapshots();
  absl::StatusOr<std::vector<std::string>> ReadSnapshots();  // by rank
  int64_t snapshot_rank() const;                             // of the last; 0: none
  int64_t num_snapshots() const;
  int64_t snapshot_bytes() const;

  // True when the rows added since the snapshot outweigh it; Compact replaces them by a new one.
  bool IsLong() const;
  absl::Status Compact(std::string snapshot);
  // The same under a new key: nothing of the old meta rows can be opened any more when this returns.
  absl::Status Renew(std::string snapshot);

  // DATA_LOSS too when inputs are missing that were stored before the last meta row.
  absl::StatusOr<std::vector<std::string>> ReadMeta();
  absl::StatusOr<DecodedInputs> ReadInputs();
  // The session's id as Begin kept it; DATA_LOSS when that is damaged too.
  absl::StatusOr<std::string> ReadName();
  int64_t num_inputs() const;
  int64_t number() const { return number_; }
  bool is_empty() const;  // nothing is stored, not even a snapshot

 private:
  friend class RecordedChange;
  // Removes every row.
  StoreChange Removal() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // After it was made: forgets the rows.
  void Empty() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  JournalDraft StartDraft() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status Apply(JournalDraft draft, Durability durability)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status ReplaceMeta(std::string snapshot, bool new_key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  absl::Status DraftRemoval(const RemovalContent& content, JournalDraft* draft)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // What is noted becomes what `after` has of it.
  void RefreshDrawn(const Inputs& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);

  SessionStore* const store_;
  const int64_t number_;
  mutable Mutex write_mutex_;  // before drawn_mutex_
  JournalState state_ ABSL_GUARDED_BY(write_mutex_);
  size_t snapshot_bytes_ ABSL_GUARDED_BY(write_mutex_) = 0;
  size_t delta_bytes_ ABSL_GUARDED_BY(write_mutex_) = 0;
  Mutex drawn_mutex_;
  Inputs drawn_ ABSL_GUARDED_BY(drawn_mutex_);  // noted, not stored
};

// A change that goes with a record of the audit log (session_store.h has the protocol). From construction to
// destruction nothing else of the session is stored. A null journal stores nothing and says yes.
class RecordedChange {
 public:
  explicit RecordedChange(SessionJournal* journal);
  ~RecordedChange();
  RecordedChange(const RecordedChange&) = delete;
  RecordedChange& operator=(const RecordedChange&) = delete;

  // Before the record is appended.
  absl::Status PrepareRemoval(const RemovalContent& content, const audit::Sha256Digest& leaf_hash);
  absl::Status PrepareDelta(std::string delta, const audit::Sha256Digest& leaf_hash);
  // After it was: what the change destroys is gone when this returns. `after` as given to PrepareRemoval; null after
  // PrepareDelta.
  absl::Status Finish(const Inputs* after);
  // The append failed: whether the log holds the leaf all the same decides. Nobody knows: `recorded` unset.
  absl::Status Undo(std::optional<bool> recorded);

  bool prepared() const { return draft_.has_value(); }
  const audit::Sha256Digest& leaf_hash() const { return leaf_hash_; }  // as prepared

 private:
  absl::Status Prepare(JournalDraft draft, const audit::Sha256Digest& leaf_hash);

  SessionJournal* const journal_;
  std::optional<JournalDraft> draft_;
  audit::Sha256Digest leaf_hash_{};
};

}  // namespace lethe

#endif  // LETHE_SERVER_JOURNAL_SESSION_JOURNAL_H_
