#include "server/journal/journal_state.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/base/byte_io.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

constexpr size_t kTrailerBytes = 16;
constexpr size_t kInputBytes = 40;  // of an input without vectors, in a row

// How many inputs a segment takes at most.
int64_t InputsPerSegment(const VectorRows& vectors) {
  const size_t bytes = kInputBytes + (vectors.key_dim + vectors.value_dim) * sizeof(double);
  return std::clamp(static_cast<int64_t>(kSegmentBytes / bytes), int64_t{1}, kSegmentInputs);
}

RowSpan SpanOf(const InputRun& run) {
  return {run.inputs.at(run.first).token_id, run.inputs.at(run.end - 1).token_id + 1,
          run.end - run.first};
}

// True when what is stored of the segment is not what is to be.
bool IsChanged(const Segment& segment, absl::Span<const uint64_t> removed_ids,
               const Inputs& after) {
  const auto removed = std::lower_bound(removed_ids.begin(), removed_ids.end(), segment.first_id);
  if (removed != removed_ids.end() && *removed < segment.end_id) return true;
  if (segment.end_id <= removed_ids.front()) return false;
  const auto [first, end] = after.RanksOf({segment.first_id, segment.end_id});
  for (int64_t rank = first; rank < end; ++rank) {
    if (after.at(rank).derived_from_forgotten) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<JournalState> JournalState::FromRows(absl::Span<const StoredRow> rows) {
  JournalState state;
  std::map<DataKeyRef, size_t> places;
  for (const StoredRow& row : rows) {
    if (row.kind == RowKind::kMeta) {
      state.meta_key = row.key;
      state.meta_rows.push_back(row);
      continue;
    }
    if (row.kind == RowKind::kSnapshot) {
      state.snapshot_rows.push_back(row);
      continue;
    }
    if (row.kind != RowKind::kInputs) return absl::DataLossError("a row of an unknown kind");
    const auto [place, is_new] = places.try_emplace(row.key, state.segments.size());
    if (is_new) state.segments.push_back(Segment(row.key));
    state.segments[place->second].rows.push_back(row);
  }
  for (const StoredRow& row : state.snapshot_rows) {
    if (places.count(row.key) > 0 || row.key == state.meta_key) {
      return absl::DataLossError("a row is of another kind than it says");
    }
  }
  std::sort(
      state.snapshot_rows.begin(), state.snapshot_rows.end(),
      [](const StoredRow& a, const StoredRow& b) { return a.span.num_inputs < b.span.num_inputs; });
  for (Segment& segment : state.segments) {
    std::sort(segment.rows.begin(), segment.rows.end(), [](const StoredRow& a, const StoredRow& b) {
      return a.span.first_id < b.span.first_id;
    });
    segment.first_id = segment.rows.front().span.first_id;
    segment.end_id = segment.rows.back().span.end_id;
    for (const StoredRow& row : segment.rows) segment.num_inputs += row.span.num_inputs;
  }
  std::sort(state.segments.begin(), state.segments.end(),
            [](const Segment& a, const Segment& b) { return a.first_id < b.first_id; });
  for (size_t i = 1; i < state.segments.size(); ++i) {
    if (state.segments[i].first_id < state.segments[i - 1].end_id) {
      return absl::DataLossError("segments overlap");
    }
  }
  return state;
}

JournalState JournalState::Damaged(absl::Span<const StoredRow> rows) {
  JournalState state;
  state.damaged_rows.assign(rows.begin(), rows.end());
  return state;
}

int64_t JournalState::num_inputs() const {
  int64_t count = 0;
  for (const Segment& segment : segments) count += segment.num_inputs;
  return count;
}

uint64_t JournalState::end_id() const { return segments.empty() ? 1 : segments.back().end_id; }

std::vector<DataKeyRef> JournalState::keys() const {
  std::vector<DataKeyRef> keys = {meta_key};
  for (const Segment& segment : segments) keys.push_back(segment.key);
  for (const StoredRow& row : snapshot_rows) keys.push_back(row.key);
  for (const StoredRow& row : damaged_rows) keys.push_back(row.key);
  return keys;
}

std::vector<int64_t> JournalState::row_ids() const {
  std::vector<int64_t> ids;
  const auto add = [&ids](const std::vector<StoredRow>& rows) {
    for (const StoredRow& row : rows) ids.push_back(row.row_id);
  };
  add(meta_rows);
  add(snapshot_rows);
  for (const Segment& segment : segments) add(segment.rows);
  add(damaged_rows);
  return ids;
}

int64_t JournalState::num_inputs_before(uint64_t token_id) const {
  int64_t count = 0;
  for (const Segment& segment : segments) {
    for (const StoredRow& row : segment.rows) {
      if (row.span.end_id <= token_id) count += row.span.num_inputs;
    }
  }
  return count;
}

absl::StatusOr<MetaTrailer> TakeTrailer(std::string* body) {
  MetaTrailer trailer;
  if (body->size() < kTrailerBytes) return absl::DataLossError("stored session: a row is cut");
  ByteReader reader(absl::string_view(*body).substr(body->size() - kTrailerBytes));
  LETHE_RETURN_IF_ERROR(reader.U64(&trailer.end_id));
  LETHE_RETURN_IF_ERROR(reader.I64(&trailer.num_inputs));
  body->resize(body->size() - kTrailerBytes);
  return trailer;
}

void JournalDraft::AddMeta(std::string body) {
  ByteWriter trailer;
  trailer.U64(next.end_id());
  trailer.I64(next.num_inputs());
  body += trailer.bytes();
  change.add.emplace_back(RowKind::kMeta, next.meta_key, RowSpan{}, std::move(body));
  StoredRow row;
  row.row_id = -static_cast<int64_t>(change.add.size());
  next.meta_rows.push_back(row);
}

absl::StatusOr<DataKeyRef> JournalDraft::TakeKey(SessionStore* store) {
  LETHE_ASSIGN_OR_RETURN(const DataKeyRef key, store->NewKey());
  new_keys.push_back(key);
  return key;
}

absl::Status JournalDraft::ReplaceMeta(std::string body, bool new_key, SessionStore* store) {
  if (new_key) {
    if (next.meta_key.generation != 0) dead_keys.push_back(next.meta_key);
    LETHE_ASSIGN_OR_RETURN(next.meta_key, TakeKey(store));
  }
  for (const StoredRow& row : next.meta_rows) change.remove.push_back(row.row_id);
  next.meta_rows.clear();
  AddMeta(std::move(body));
  return absl::OkStatus();
}

void JournalDraft::PutRow(const InputRun& run, std::string body, Segment* segment) {
  const RowSpan span = SpanOf(run);
  if (segment->rows.empty()) segment->first_id = span.first_id;
  segment->end_id = span.end_id;
  segment->num_inputs += span.num_inputs;
  segment->num_bytes += body.size();
  change.add.emplace_back(RowKind::kInputs, segment->key, span, std::move(body));
  StoredRow row;
  row.row_id = -static_cast<int64_t>(change.add.size());
  row.span = span;
  segment->rows.push_back(row);
}

absl::Status JournalDraft::AddInputs(const InputRun& run, const VectorRows& vectors,
                                     SessionStore* store) {
  const int64_t most = InputsPerSegment(vectors);
  for (int64_t first = run.first; first < run.end;) {
    const bool has_room = !next.segments.empty() && next.segments.back().num_inputs < most &&
                          next.segments.back().num_bytes < kSegmentBytes;
    if (!has_room) {
      LETHE_ASSIGN_OR_RETURN(const DataKeyRef key, TakeKey(store));
      next.segments.push_back(Segment(key));
    }
    Segment* const segment = &next.segments.back();
    const InputRun piece = {run.inputs, first,
                            std::min(run.end, first + most - segment->num_inputs)};
    PutRow(piece, EncodeInputs(piece, vectors), segment);
    first = piece.end;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Segment>> JournalDraft::Reseal(const InputRun& run,
                                                          const VectorRows& vectors,
                                                          SessionStore* store) {
  std::vector<Segment> segments;
  const int64_t most = InputsPerSegment(vectors);
  for (int64_t first = run.first; first < run.end; first += most) {
    LETHE_ASSIGN_OR_RETURN(const DataKeyRef key, TakeKey(store));
    segments.push_back(Segment(key));
    const InputRun piece = {run.inputs, first, std::min(run.end, first + most)};
    PutRow(piece, EncodeInputs(piece, vectors), &segments.back());
  }
  return segments;
}

absl::Status JournalDraft::RemoveInputs(absl::Span<const uint64_t> removed_ids, const Inputs& after,
                                        const VectorRows& vectors, SessionStore* store) {
  if (!removed_ids.empty()) DropSnapshots(removed_ids.front());
  std::vector<Segment> kept;
  for (Segment& segment : next.segments) {
    if (removed_ids.empty() || !IsChanged(segment, removed_ids, after)) {
      kept.push_back(std::move(segment));
      continue;
    }
    for (const StoredRow& row : segment.rows) change.remove.push_back(row.row_id);
    dead_keys.push_back(segment.key);
    const auto [first, end] = after.RanksOf({segment.first_id, segment.end_id});
    LETHE_ASSIGN_OR_RETURN(std::vector<Segment> resealed,
                           Reseal({after, first, end}, vectors, store));
    for (Segment& piece : resealed) kept.push_back(std::move(piece));
  }
  next.segments = std::move(kept);
  return absl::OkStatus();
}

absl::Status JournalDraft::AddSnapshot(std::string body, uint64_t end_id, int64_t rank,
                                       SessionStore* store) {
  LETHE_ASSIGN_OR_RETURN(const DataKeyRef key, TakeKey(store));
  const RowSpan span{1, end_id, rank};
  change.add.emplace_back(RowKind::kSnapshot, key, span, std::move(body));
  StoredRow row;
  row.row_id = -static_cast<int64_t>(change.add.size());
  row.span = span;
  next.snapshot_rows.push_back(row);
  return absl::OkStatus();
}

void JournalDraft::DropSnapshots(uint64_t first_id) {
  std::vector<StoredRow> kept;
  for (const StoredRow& row : next.snapshot_rows) {
    if (row.span.end_id <= first_id) {
      kept.push_back(row);
      continue;
    }
    change.remove.push_back(row.row_id);
    dead_keys.push_back(row.key);
  }
  next.snapshot_rows = std::move(kept);
}

void JournalDraft::FillIn(absl::Span<const StoredRow> added) {
  LETHE_CHECK(added.size() == change.add.size());
  const auto fill = [&](std::vector<StoredRow>* rows) {
    for (StoredRow& row : *rows) {
      if (row.row_id < 0) row = added[static_cast<size_t>(-row.row_id - 1)];
    }
  };
  fill(&next.meta_rows);
  fill(&next.snapshot_rows);
  for (Segment& segment : next.segments) fill(&segment.rows);
}

}  // namespace lethe
