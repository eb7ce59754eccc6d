#include "memory/svdd/gram_cache.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/wiped.h"
#include "kernels/gram/gram.h"

namespace lethe::svdd {
namespace {

constexpr size_t kSpareRows = 64;  // about what a boundary changes
constexpr size_t kFirstColumns = 64;

}  // namespace

GramCache::GramCache(const GramCache& other)
    : sigma_(other.sigma_),
      groups_(other.groups_),
      rows_(other.rows_),
      num_evaluations_(other.num_evaluations_) {
  MoveRows(other.store_.stride());
}

void GramCache::WipeBuffers() {
  store_.WipeFree();
  WipeAll(&buffer_);
}

void GramCache::OverwriteBuffers() {
  store_.WipeFree();
  const size_t used = std::min(buffer_used_, buffer_.size());
  if (used > 0) explicit_bzero(buffer_.data(), used * sizeof(double));
  buffer_used_ = 0;
}

WipedVector<double> GramCache::TakeBuffer(size_t size) {
  buffer_used_ = std::max(buffer_used_, size);
  WipedVector<double> buffer = std::move(buffer_);
  buffer_.clear();
  if (buffer.size() < size) buffer = WipedVector<double>(size + size / 2);
  return buffer;
}

void GramCache::GiveBuffer(WipedVector<double> buffer) {
  if (buffer.size() * sizeof(double) > kBufferBytes) {
    WipeAll(&buffer);
  } else if (buffer.size() > buffer_.size()) {
    buffer_ = std::move(buffer);
  }
}

void GramCache::MakeRoom() {
  const auto num_rows = static_cast<size_t>(num_groups());
  rows_.resize(num_rows);
  if (num_rows > store_.stride()) MoveRows(num_rows + num_rows / 2 + kFirstColumns);
}

void GramCache::MoveRows(size_t stride) {
  RowStore store(stride);
  const auto is_cached = [](const CachedRow& row) { return row.length != 0; };
  store.Reserve(static_cast<size_t>(std::count_if(rows_.begin(), rows_.end(), is_cached)));
  for (CachedRow& row : rows_) {
    if (!is_cached(row)) continue;
    double* to = store.Take();
    std::copy_n(row.data, row.length, to);
    row.data = to;
  }
  store_ = std::move(store);
}

void GramCache::Drop(CachedRow* row) {
  if (row->length != 0) store_.Give(row->data);
  *row = {};
}

void GramCache::Shorten(size_t length, CachedRow* row) {
  if (row->length <= length) return;
  if (length == 0) return Drop(row);
  explicit_bzero(row->data + length, (row->length - length) * sizeof(double));
  row->length = length;
}

void GramCache::Append(absl::Span<const double> keys) {
  groups_.Append(keys);
  MakeRoom();
}

void GramCache::CopyKeys(const GramCache& other) {
  LETHE_CHECK(num_keys() == 0);
  groups_ = other.groups_;
  MakeRoom();
}

void GramCache::SetEdited(const GramCache& before, const KeyEdit& edit) {
  const std::vector<int64_t> group_before = groups_.SetEdited(before.groups_, edit);
  MakeRoom();
  WipedVector<double> new_keys;
  std::vector<int64_t> carried;
  for (int64_t i = 0; i < num_groups(); ++i) {
    const int64_t old = group_before[static_cast<size_t>(i)];
    if (old == KeyEdit::kNone) {
      new_keys.insert(new_keys.end(), groups_.Key(i).begin(), groups_.Key(i).end());
    } else if (before.CachedLength(old) == before.num_groups()) {
      // A short row lacks the newest keys; those of a solved list are whole.
      carried.push_back(i);
    }
  }
  store_.Reserve(carried.size() + carried.size() / 8 + kSpareRows);
  for (const int64_t i : carried) {
    const auto old = static_cast<size_t>(group_before[static_cast<size_t>(i)]);
    CarryRow(before.rows_[old].data, group_before, new_keys, i);
  }
}

void GramCache::CarryRow(const double* before, const std::vector<int64_t>& group_before,
                         absl::Span<const double> new_keys, int64_t index) {
  const absl::Span<const double> key = groups_.Key(index);
  std::vector<double> evaluated(new_keys.size() / key.size());
  GramRow(key, new_keys, sigma_, absl::MakeSpan(evaluated));
  num_evaluations_ += static_cast<int64_t>(evaluated.size());
  const size_t length = group_before.size();
  CachedRow& row = rows_[static_cast<size_t>(index)];
  row = {store_.Take(), length};
  size_t next = 0;
  for (size_t begin = 0; begin < length;) {
    const int64_t first = group_before[begin];
    if (first == KeyEdit::kNone) {
      row.data[begin++] = evaluated[next++];
      continue;
    }
    size_t end = begin + 1;
    while (end < length && group_before[end] == group_before[end - 1] + 1) ++end;
    std::copy_n(before + first, end - begin, row.data + begin);
    begin = end;
  }
}

void GramCache::Truncate(int64_t num_keys_kept) {
  groups_.Truncate(num_keys_kept);
  const auto kept = static_cast<size_t>(num_groups());
  for (size_t i = kept; i < rows_.size(); ++i) Drop(&rows_[i]);
  rows_.resize(kept);
  for (CachedRow& row : rows_) Shorten(kept, &row);
  WipeBuffers();
}

bool GramCache::Erase(int64_t rank) {
  const auto group = static_cast<size_t>(groups_.GroupOf(rank));
  if (!groups_.Erase(rank)) return false;
  CachedRow& own = rows_[group];
  if (own.length != 0) std::fill_n(own.data, own.length, 0.0);
  Drop(&own);
  for (CachedRow& row : rows_) {
    if (row.length > group) row.data[group] = 0.0;
  }
  return true;
}

std::vector<int64_t> GramCache::Compact() {
  for (int64_t i = 0; i < num_groups(); ++i) {
    if (CachedLength(i) != 0) Row(i);
  }
  KeyEdit edit;
  for (int64_t rank = 0; rank < num_keys(); ++rank) edit.kept.push_back(rank);
  GramCache compact(sigma_, groups_.dim());
  compact.SetEdited(*this, edit);
  std::vector<int64_t> number_before;
  for (int64_t i = 0; i < compact.num_groups(); ++i) {
    number_before.push_back(groups_.GroupOf(compact.groups_.FirstRank(i)));
  }
  groups_ = std::move(compact.groups_);
  store_ = std::move(compact.store_);
  rows_ = std::move(compact.rows_);
  WipeBuffers();
  return number_before;
}

void GramCache::KeepOnly(absl::Span<const int64_t> indices, size_t max_bytes) {
  size_t next = 0;
  size_t num_kept = 0;
  const size_t row_bytes = static_cast<size_t>(num_groups()) * sizeof(double);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const bool wanted = next < indices.size() && static_cast<size_t>(indices[next]) == i;
    next += wanted ? 1 : 0;
    if (rows_[i].length == 0) continue;
    if (wanted && (num_kept + 1) * row_bytes <= max_bytes) {
      ++num_kept;
    } else {
      Drop(&rows_[i]);
    }
  }
  if (store_.num_free() > kSpareRows + num_kept / 2) MoveRows(store_.stride());
}

absl::Span<const double> GramCache::Row(int64_t index) {
  LETHE_DCHECK(index >= 0 && index < num_groups());
  CachedRow& row = rows_[static_cast<size_t>(index)];
  const size_t old_length = row.length;
  const size_t length = static_cast<size_t>(num_groups());
  if (old_length < length) {
    if (old_length == 0) row.data = store_.Take();
    row.length = length;
    const absl::Span<const double> key = groups_.Key(index);
    GramRow(key, groups_.distinct_keys().subspan(old_length * key.size()), sigma_,
            row.entries().subspan(old_length));
    num_evaluations_ += static_cast<int64_t>(length - old_length);
  }
  return row.entries();
}

const double* GramCache::Part(int64_t index, int64_t begin, absl::Span<double> room) {
  const auto first = static_cast<size_t>(begin);
  if (HasRow(index)) return rows_[static_cast<size_t>(index)].data + first;
  const absl::Span<const double> key = groups_.Key(index);
  GramRow(key, groups_.distinct_keys().subspan(first * key.size(), room.size() * key.size()),
          sigma_, room);
  num_evaluations_ += static_cast<int64_t>(room.size());
  return room.data();
}

void GramCache::Block(absl::Span<const int64_t> rows, absl::Span<const int64_t> columns,
                      size_t stride, double* out) {
  LETHE_CHECK(stride >= rows.size());
  const int64_t last = rows.empty() ? 0 : *std::max_element(rows.begin(), rows.end());
  std::vector<size_t> missing;  // positions in rows
  std::vector<size_t> gathered;
  WipedVector<double> keys;  // of gathered
  std::vector<double> values;
  for (size_t c = 0; c < columns.size(); ++c) {
    const int64_t column = columns[c];
    const absl::Span<const double> cached = rows_[static_cast<size_t>(column)].entries();
    const auto length = static_cast<int64_t>(cached.size());
    double* to = out + c * stride;
    if (last < length) {
      for (size_t r = 0; r < rows.size(); ++r) to[r] = cached[static_cast<size_t>(rows[r])];
      continue;
    }
    missing.clear();
    for (size_t r = 0; r < rows.size(); ++r) {
      const int64_t row = rows[r];
      if (row < length) {
        to[r] = cached[static_cast<size_t>(row)];
      } else if (column < CachedLength(row)) {
        to[r] = rows_[static_cast<size_t>(row)].data[static_cast<size_t>(column)];
      } else {
        missing.push_back(r);
      }
    }
    // One call for all: a call for one key costs as much as for four.
    if (missing != gathered) {
      gathered = missing;
      keys.clear();
      for (const size_t r : gathered) {
        const absl::Span<const double> key = groups_.Key(rows[r]);
        keys.insert(keys.end(), key.begin(), key.end());
      }
    }
    values.resize(missing.size());
    GramRow(groups_.Key(column), keys, sigma_, absl::MakeSpan(values));
    num_evaluations_ += static_cast<int64_t>(missing.size());
    for (size_t k = 0; k < missing.size(); ++k) to[missing[k]] = values[k];
  }
}

size_t GramCache::state_bytes() const {
  return groups_.state_bytes() + buffer_.capacity() * sizeof(double) + store_.state_bytes() +
         rows_.capacity() * sizeof(CachedRow);
}

}  // namespace lethe::svdd
