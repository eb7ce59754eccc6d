// JournalState, JournalDraft: which rows of the session store a session consists of, and how a change makes others of
// them.
//
// Equation:  a session's inputs are those of its segments in the order of their token_ids; a segment is what one data
//            key seals, so that its key alone has to go when one of its inputs goes. What else is known of the session
//            is its meta rows: one snapshot and the rows added since, all under one key of their own.
// Shapes:    a segment takes kSegmentInputs inputs or kSegmentBytes, whatever comes first.
// Units:     token_ids, half-open.
// Requires:  `next` of a draft has -(i + 1) for the row_id of the i-th row to add until FillIn.
// Rejects:   FromRows: DATA_LOSS: a row of no known kind, or segments that overlap. Damaged takes any rows: they can be
//            destroyed.
// Effects:   none.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_JOURNAL_JOURNAL_STATE_H_
#define LETHE_SERVER_JOURNAL_JOURNAL_STATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "server/journal/input_codec.h"
#include "server/store/session_store.h"

namespace lethe {

inline constexpr int64_t kSegmentInputs = 1024;
inline constexpr size_t kSegmentBytes = size_t{256} << 10;

struct Segment {
  explicit Segment(const DataKeyRef& segment_key) : key(segment_key) {}
  DataKeyRef key;
  std::vector<StoredRow> rows;
  uint64_t first_id = 0;
  uint64_t end_id = 0;
  int64_t num_inputs = 0;
  size_t num_bytes = 0;  // of what this process wrote
};

struct JournalState {
  DataKeyRef meta_key;
  std::vector<StoredRow> meta_rows;
  std::vector<Segment> segments;  // by token_id
  std::vector<StoredRow>
      snapshot_rows;  // by rank, each of use with those before it, each under its own key
  std::vector<StoredRow> damaged_rows;

  static absl::StatusOr<JournalState> FromRows(absl::Span<const StoredRow> rows);
  static JournalState Damaged(absl::Span<const StoredRow> rows);
  int64_t num_inputs() const;
  // Behind the last stored input; 1 when there is none.
  uint64_t end_id() const;
  // Its own: those that go with it.
  std::vector<DataKeyRef> keys() const;
  std::vector<int64_t> row_ids() const;
  // The number of stored inputs with smaller ids.
  int64_t num_inputs_before(uint64_t token_id) const;
};

// Takes off the end of a meta body what AddMeta put there: how many inputs were stored, and behind which id none was.
struct MetaTrailer {
  uint64_t end_id = 1;
  int64_t num_inputs = 0;
};
absl::StatusOr<MetaTrailer> TakeTrailer(std::string* body);

struct JournalDraft {
  StoreChange change;
  JournalState next;
  std::vector<DataKeyRef> new_keys;
  std::vector<DataKeyRef> dead_keys;

  // After the inputs of the same change: the row says how many are stored then, so that a lost row is missed.
  void AddMeta(std::string body);
  // Instead of all meta rows; with `new_key` the old one is dead.
  absl::Status ReplaceMeta(std::string body, bool new_key, SessionStore* store);
  // Inputs behind the last stored one. Takes the new keys that it needs from `store`.
  absl::Status AddInputs(const InputRun& run, const VectorRows& vectors, SessionStore* store);
  // Seals under new keys what stays of every segment that holds a removed id or, behind it, a token whose mark may have
  // changed; their old keys are dead. `after`: the inputs without the removed ones.
  absl::Status RemoveInputs(absl::Span<const uint64_t> removed_ids, const Inputs& after,
                            const VectorRows& vectors, SessionStore* store);
  // What the rows became.
  void FillIn(absl::Span<const StoredRow> added);
  // Behind the last stored snapshot. `end_id`: behind the inputs that it was evaluated from, `rank` of them.
  absl::Status AddSnapshot(std::string body, uint64_t end_id, int64_t rank, SessionStore* store);
  // Snapshots that were evaluated from an input with this id or a later one; their keys are dead.
  void DropSnapshots(uint64_t first_id);

 private:
  absl::StatusOr<DataKeyRef> TakeKey(SessionStore* store);
  void PutRow(const InputRun& run, std::string body, Segment* segment);
  absl::StatusOr<std::vector<Segment>> Reseal(const InputRun& run, const VectorRows& vectors,
                                              SessionStore* store);
};

}  // namespace lethe

#endif  // LETHE_SERVER_JOURNAL_JOURNAL_STATE_H_
