#include "kernels/window_attention/window_attention.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

// Copies `count` rows of the ring, oldest first, into one array.
std::vector<float> RowsInOrder(const WindowAttentionState& state, int64_t row_size,
                               const float* (WindowAttentionState::*row)(int64_t) const) {
  std::vector<float> rows;
  rows.reserve(static_cast<size_t>(state.num_rows() * row_size));
  for (int64_t distance = state.num_rows(); distance >= 1; --distance) {
    const float* values = (state.*row)(distance);
    rows.insert(rows.end(), values, values + row_size);
  }
  return rows;
}

}  // namespace

WindowAttentionState::WindowAttentionState(const WindowAttentionShape& shape) : shape_(shape) {
  LETHE_CHECK(shape.num_heads >= 1 && shape.window >= 1);
  LETHE_CHECK(shape.key_dim >= 1 && shape.value_dim >= 1);
  const int64_t num_slots = (shape.window - 1) * shape.num_heads;
  keys_.resize(static_cast<size_t>(num_slots * shape.key_dim), 0.0f);
  values_.resize(static_cast<size_t>(num_slots * shape.value_dim), 0.0f);
}

int64_t WindowAttentionState::Slot(int64_t distance) const {
  LETHE_DCHECK(distance >= 1 && distance <= num_rows_);
  const int64_t slot = next_slot_ - distance;
  return slot >= 0 ? slot : slot + shape_.window - 1;
}

const float* WindowAttentionState::key_row(int64_t distance) const {
  return keys_.data() + Slot(distance) * shape_.num_heads * shape_.key_dim;
}

const float* WindowAttentionState::value_row(int64_t distance) const {
  return values_.data() + Slot(distance) * shape_.num_heads * shape_.value_dim;
}

void WindowAttentionState::Append(absl::Span<const float> k, absl::Span<const float> v) {
  const int64_t key_row_size = shape_.num_heads * shape_.key_dim;
  const int64_t value_row_size = shape_.num_heads * shape_.value_dim;
  LETHE_CHECK(key_row_size > 0 && k.size() % static_cast<size_t>(key_row_size) == 0);
  const int64_t count = static_cast<int64_t>(k.size()) / key_row_size;
  LETHE_CHECK(v.size() == static_cast<size_t>(count * value_row_size));
  const int64_t num_slots = shape_.window - 1;
  for (int64_t t = std::max<int64_t>(0, count - num_slots); t < count; ++t) {
    std::copy_n(k.begin() + t * key_row_size, key_row_size,
                keys_.begin() + next_slot_ * key_row_size);
    std::copy_n(v.begin() + t * value_row_size, value_row_size,
                values_.begin() + next_slot_ * value_row_size);
    next_slot_ = next_slot_ + 1 == num_slots ? 0 : next_slot_ + 1;
  }
  num_rows_ = std::min(num_slots, num_rows_ + count);
}

void WindowAttentionState::Clear() {
  std::fill(keys_.begin(), keys_.end(), 0.0f);
  std::fill(values_.begin(), values_.end(), 0.0f);
  num_rows_ = 0;
  next_slot_ = 0;
}

void WindowAttentionState::AppendTo(ByteWriter* out) const {
  out->Array(absl::MakeConstSpan(
      RowsInOrder(*this, shape_.num_heads * shape_.key_dim, &WindowAttentionState::key_row)));
  out->Array(absl::MakeConstSpan(
      RowsInOrder(*this, shape_.num_heads * shape_.value_dim, &WindowAttentionState::value_row)));
}

absl::Status WindowAttentionState::Read(ByteReader* in) {
  std::vector<float> k;
  std::vector<float> v;
  LETHE_RETURN_IF_ERROR(in->Array(&k));
  LETHE_RETURN_IF_ERROR(in->Array(&v));
  const auto key_row_size = static_cast<size_t>(shape_.num_heads * shape_.key_dim);
  const auto value_row_size = static_cast<size_t>(shape_.num_heads * shape_.value_dim);
  if (key_row_size == 0 || k.size() % key_row_size != 0 || k.size() > keys_.size() ||
      v.size() != k.size() / key_row_size * value_row_size) {
    return absl::DataLossError("window state: number of values is not that of 0 … window-1 rows");
  }
  Clear();
  Append(k, v);
  return absl::OkStatus();
}

}  // namespace lethe
