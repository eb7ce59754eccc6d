#include "server/model/stored_inputs.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace lethe {
namespace {

// The floats, the vector, and about what two allocations and the reference counts take.
size_t BytesOfRow(int64_t columns) {
  return static_cast<size_t>(columns) * sizeof(float) + sizeof(WipedFloats) + 48;
}

}  // namespace

StoredInputs::StoredInputs(int64_t columns, size_t max_bytes)
    : columns_(columns), max_rows_(static_cast<int64_t>(max_bytes / BytesOfRow(columns))) {}

void StoredInputs::Append(Row row) {
  LETHE_CHECK(static_cast<int64_t>(row->size()) == columns_);
  rows_.push_back(std::move(row));
  const int64_t oldest = size() - 1 - max_rows_;
  if (oldest >= 0) rows_[static_cast<size_t>(oldest)].reset();
}

void StoredInputs::Truncate(int64_t num_rows) {
  LETHE_CHECK(num_rows >= 0 && num_rows <= size());
  rows_.resize(static_cast<size_t>(num_rows));
}

void StoredInputs::Remove(absl::Span<const int64_t> ranks) {
  auto next = ranks.begin();
  size_t kept = ranks.empty() ? rows_.size() : static_cast<size_t>(ranks.front());
  for (size_t rank = kept; rank < rows_.size(); ++rank) {
    if (next != ranks.end() && static_cast<int64_t>(rank) == *next) {
      ++next;
      continue;
    }
    rows_[kept++] = std::move(rows_[rank]);
  }
  LETHE_CHECK(next == ranks.end());
  rows_.resize(kept);
}

void StoredInputs::Set(int64_t rank, Row row) {
  LETHE_CHECK(rank >= 0 && rank < size() && static_cast<int64_t>(row->size()) == columns_);
  rows_[static_cast<size_t>(rank)] = std::move(row);
}

void StoredInputs::DropBeyondLimit() {
  const int64_t num_dropped = std::max<int64_t>(size() - max_rows_, 0);
  for (int64_t rank = 0; rank < num_dropped; ++rank) rows_[static_cast<size_t>(rank)].reset();
}

size_t StoredInputs::state_bytes() const {
  const auto num_held =
      std::count_if(rows_.begin(), rows_.end(), [](const Row& row) { return row != nullptr; });
  return rows_.capacity() * sizeof(Row) + static_cast<size_t>(num_held) * BytesOfRow(columns_);
}

}  // namespace lethe
