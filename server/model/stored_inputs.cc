#include "server/model/stored_inputs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/check.h"

namespace lethe {
namespace {

constexpr size_t kFirstSlabRows = 64;

// The floats, and about what the reference counts take.
size_t BytesOfRow(int64_t columns) { return static_cast<size_t>(columns) * sizeof(float) + 64; }

}  // namespace

std::shared_ptr<float> RowMaker::Make() {
  if (slab_ == nullptr || next_row_ == rows_in_slab_) {
    const size_t most =
        std::max<size_t>(kHugePageBytes / (BytesOfRow(static_cast<int64_t>(columns_))), 1);
    rows_in_slab_ = std::min(most, rows_in_slab_ == 0 ? kFirstSlabRows : 4 * rows_in_slab_);
    // Not a vector, which would write its elements first.
    const size_t size = std::max<size_t>(rows_in_slab_ * columns_, 1);
    slab_ = std::shared_ptr<float>(WipingAllocator<float>().allocate(size), [size](float* slab) {
      WipingAllocator<float>().deallocate(slab, size);
    });
    next_row_ = 0;
  }
  const size_t bytes = columns_ * sizeof(float);
  float* row = slab_.get() + next_row_++ * columns_;
  return std::shared_ptr<float>(
      row, [slab = slab_, bytes](float* released) { explicit_bzero(released, bytes); });
}

StoredInputs::StoredInputs(int64_t columns, size_t max_bytes)
    : columns_(columns), max_rows_(static_cast<int64_t>(max_bytes / BytesOfRow(columns))) {}

void StoredInputs::Append(Row row) {
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
  LETHE_CHECK(rank >= 0 && rank < size());
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
