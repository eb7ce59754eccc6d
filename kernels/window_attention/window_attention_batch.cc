#include "kernels/window_attention/window_attention_batch.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/on_cuda.h"
#include "kernels/window_attention/window_attention_cuda.h"

namespace lethe {
namespace {

constexpr int64_t kSequencesMax = 65535;  // of a launch's grid
constexpr int64_t kWindowMax = 1 << 14;   // a query's weights fit shared memory

// [H][window-1][dim] of one slot, gathered to the rows [count][H][dim] of ranks first … first+count-1,
// or scattered from them.
enum class Direction { kGather, kScatter };
void MoveRows(Direction direction, int64_t num_heads, int64_t num_places, int64_t dim,
              int64_t first, int64_t count, float* slot, float* rows) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t head = 0; head < num_heads; ++head) {
      float* place = slot + (head * num_places + (first + i) % num_places) * dim;
      float* row = rows + (i * num_heads + head) * dim;
      const bool gathers = direction == Direction::kGather;
      std::copy_n(gathers ? place : row, dim, gathers ? row : place);
    }
  }
}

// The host's form: one sequence.
class PooledSequence {
 public:
  PooledSequence(const WindowAttentionShape& shape, const WindowAttentionPool& pool, int32_t slot)
      : shape_(shape), num_places_(shape.window - 1) {
    const int64_t slot_rows = slot * shape.num_heads * num_places_;
    keys_ = pool.keys + slot_rows * shape.key_dim;
    values_ = pool.values + slot_rows * shape.value_dim;
  }

  WindowAttentionState State(int64_t rank) const {
    WindowAttentionState state(shape_);
    const int64_t count = std::min(rank, num_places_);
    std::vector<float> k(static_cast<size_t>(count * shape_.num_heads * shape_.key_dim));
    std::vector<float> v(static_cast<size_t>(count * shape_.num_heads * shape_.value_dim));
    MoveRows(Direction::kGather, shape_.num_heads, num_places_, shape_.key_dim, rank - count, count,
             keys_, k.data());
    MoveRows(Direction::kGather, shape_.num_heads, num_places_, shape_.value_dim, rank - count,
             count, values_, v.data());
    state.Append(k, v);
    return state;
  }

  // Stores the last rows of a state that stands behind rank `end`, `count` of them new.
  void Store(const WindowAttentionState& state, int64_t end, int64_t count) {
    for (int64_t distance = std::min(count, num_places_); distance >= 1; --distance) {
      std::vector<float> k(state.key_row(distance),
                           state.key_row(distance) + shape_.num_heads * shape_.key_dim);
      std::vector<float> v(state.value_row(distance),
                           state.value_row(distance) + shape_.num_heads * shape_.value_dim);
      MoveRows(Direction::kScatter, shape_.num_heads, num_places_, shape_.key_dim, end - distance,
               1, keys_, k.data());
      MoveRows(Direction::kScatter, shape_.num_heads, num_places_, shape_.value_dim, end - distance,
               1, values_, v.data());
    }
  }

 private:
  WindowAttentionShape shape_;
  int64_t num_places_;
  float* keys_;
  float* values_;
};

void AttendOnHost(const WindowAttentionShape& shape, const float* slopes, const float* q,
                  const float* k, const float* v, const PackedSequences& sequences,
                  const WindowAttentionPool& pool, float* o) {
  const int64_t key_row = shape.num_heads * shape.key_dim;
  const int64_t value_row = shape.num_heads * shape.value_dim;
  for (int64_t s = 0; s < sequences.num_sequences; ++s) {
    const int64_t first = sequences.offsets[s];
    const int64_t count = sequences.offsets[s + 1] - first;
    PooledSequence pooled(shape, pool, sequences.slots[s]);
    WindowAttentionState state = pooled.State(sequences.ranks[s]);
    WindowAttention(
        absl::MakeConstSpan(slopes, static_cast<size_t>(shape.num_heads)),
        absl::MakeConstSpan(q + first * key_row, static_cast<size_t>(count * key_row)),
        absl::MakeConstSpan(k + first * key_row, static_cast<size_t>(count * key_row)),
        absl::MakeConstSpan(v + first * value_row, static_cast<size_t>(count * value_row)), count,
        &state, absl::MakeSpan(o + first * value_row, static_cast<size_t>(count * value_row)));
    pooled.Store(state, sequences.ranks[s] + count, count);
  }
}

}  // namespace

absl::Status WindowAttentionBatch(Queue* queue, const WindowAttentionShape& shape,
                                  const float* slopes, const float* q, const float* k,
                                  const float* v, const PackedSequences& sequences,
                                  const WindowAttentionPool& pool, float* o) {
  LETHE_CHECK(shape.num_heads >= 1 && shape.window >= 1 && shape.window <= kWindowMax);
  LETHE_CHECK(shape.key_dim >= 8 && shape.key_dim % 8 == 0);
  LETHE_CHECK(shape.value_dim >= 8 && shape.value_dim % 8 == 0);
  LETHE_CHECK(sequences.num_sequences >= 0 && sequences.num_sequences <= kSequencesMax);
  if (sequences.num_tokens == 0) return absl::OkStatus();
  LETHE_CHECK(sequences.longest >= 1);
  if (queue->kind() == DeviceKind::kCuda) {
    [[maybe_unused]] const window_attention::CudaProblem problem = {
        .slopes = slopes,
        .q = q,
        .k = k,
        .v = v,
        .sequences = sequences,
        .pool = pool,
        .o = o,
        .num_heads = static_cast<int>(shape.num_heads),
        .key_dim = static_cast<int>(shape.key_dim),
        .value_dim = static_cast<int>(shape.value_dim),
        .window = static_cast<int>(shape.window),
        .scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim))};
    return LETHE_ON_CUDA(window_attention::WindowAttentionCuda(queue, problem));
  }
  AttendOnHost(shape, slopes, q, k, v, sequences, pool, o);
  return absl::OkStatus();
}

}  // namespace lethe
