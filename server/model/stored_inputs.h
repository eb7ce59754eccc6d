// StoredInputs, RowMaker: what the streaming heads of a bank took from every retained token, so that a Forget
// replays them without the model (design.md 2.1).
//
// Equation:  none; a row is the concatenation of the groups' stored rows (memory_group.h).
// Shapes:    row: [columns] f32, one for each rank.
// Units:     ranks; bytes.
// Requires:  ranks in [0, size()); rows of `columns` floats.
// Rejects:   none.
// Effects:   a cache: when its rows exceed max_bytes, their bookkeeping included, those of the lowest
//            ranks are dropped, and row() says so; the local layers give them again, bit for bit.
//            A rank costs sizeof(Row) bytes in any case. Rows are immutable once they are appended,
//            and shared by copies; the last owner overwrites them. RowMaker cuts rows from slabs, for
//            first touching fresh pages costs as much as a tenth of a token's evaluation; a slab is
//            freed with its last row.
// Numerics:  none.
// Threads:   compatible; copies may live on different threads.
#ifndef LETHE_SERVER_MODEL_STORED_INPUTS_H_
#define LETHE_SERVER_MODEL_STORED_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"

#include "kernels/base/wiped.h"

namespace lethe {

class RowMaker {
 public:
  explicit RowMaker(int64_t columns) : columns_(static_cast<size_t>(columns)) {}
  // A copy starts a slab of its own.
  RowMaker(const RowMaker& other) : columns_(other.columns_) {}
  RowMaker& operator=(const RowMaker&) = delete;

  // [columns], to be written whole. Overwritten when its last owner lets go.
  std::shared_ptr<float> Make();

 private:
  size_t columns_;
  size_t rows_in_slab_ = 0;  // of the newest
  size_t next_row_ = 0;
  std::shared_ptr<float> slab_;
};

class StoredInputs {
 public:
  using Row = std::shared_ptr<const float>;

  StoredInputs(int64_t columns, size_t max_bytes);

  int64_t columns() const { return columns_; }
  int64_t max_rows() const { return max_rows_; }
  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  // Null when it was dropped.
  const float* row(int64_t rank) const { return rows_[static_cast<size_t>(rank)].get(); }

  void Append(Row row);
  void Truncate(int64_t num_rows);
  // Ascending distinct ranks; later ones move down.
  void Remove(absl::Span<const int64_t> ranks);
  // May exceed max_bytes until DropBeyondLimit.
  void Set(int64_t rank, Row row);
  void DropBeyondLimit();

  size_t state_bytes() const;

 private:
  int64_t columns_;
  int64_t max_rows_;
  std::vector<Row> rows_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_STORED_INPUTS_H_
