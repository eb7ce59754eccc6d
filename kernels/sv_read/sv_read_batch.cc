#include "kernels/sv_read/sv_read_batch.h"

#include <algorithm>
#include <cstddef>

#include "kernels/base/check.h"
#include "kernels/base/on_cuda.h"
#include "kernels/base/wiped.h"
#include "kernels/sv_read/sv_read_cuda.h"

namespace lethe {
namespace {

constexpr int64_t kSequencesMax = 65535;  // of a launch's grid

absl::Span<const float> Rows(const float* rows, int64_t count, int64_t dim) {
  return {rows, static_cast<size_t>(count * dim)};
}

SvReadRows RowsOf(const SvReadShape& shape, const SvReadHead& head, int64_t num_local) {
  return {{Rows(head.support_keys, head.num_distinct, shape.key_dim),
           {head.support_key_of, static_cast<size_t>(head.num_support)},
           Rows(head.support_gates, head.num_support, 1),
           Rows(head.support_values, head.num_support, shape.value_dim)},
          Rows(head.tail_keys, num_local, shape.key_dim),
          Rows(head.tail_values, num_local, shape.value_dim)};
}

void ReadOnHost(const SvReadShape& shape, const float* scales, const float* q, const float* k,
                const float* v, const PackedSequences& sequences, const SvReadHead* heads,
                float* o) {
  SvReadWorkspace workspace;
  for (int64_t s = 0; s < sequences.num_sequences; ++s) {
    const SvReadHead* of_slot = heads + sequences.slots[s] * shape.num_heads;
    int64_t place = sequences.ranks[s] % kSvTailTokens;
    for (int64_t row = sequences.offsets[s]; row < sequences.offsets[s + 1]; ++row, ++place) {
      LETHE_CHECK(place < kSvTailTokens);
      for (int64_t h = 0; h < shape.num_heads; ++h) {
        const SvReadHead& head = of_slot[h];
        const int64_t key = (row * shape.num_heads + h) * shape.key_dim;
        const int64_t value = (row * shape.num_heads + h) * shape.value_dim;
        std::copy_n(k + key, shape.key_dim, head.tail_keys + place * shape.key_dim);
        std::copy_n(v + value, shape.value_dim, head.tail_values + place * shape.value_dim);
        SvRead(scales[h], Rows(q + key, 1, shape.key_dim), RowsOf(shape, head, place + 1),
               &workspace, {o + value, static_cast<size_t>(shape.value_dim)});
      }
    }
  }
  WipeFrom(&workspace.logits, 0);
  WipeFrom(&workspace.weights, 0);
}

}  // namespace

absl::Status SvReadBatch(Queue* queue, const SvReadShape& shape, const float* scales,
                         const float* q, const float* k, const float* v,
                         const PackedSequences& sequences, const SvReadHead* heads,
                         [[maybe_unused]] int64_t most_distinct, float* o) {
  LETHE_CHECK(shape.num_heads >= 1);
  LETHE_CHECK(shape.key_dim >= 8 && shape.key_dim % 8 == 0);
  LETHE_CHECK(shape.value_dim >= 8 && shape.value_dim % 8 == 0);
  LETHE_CHECK(sequences.num_sequences >= 0 && sequences.num_sequences <= kSequencesMax);
  if (sequences.num_tokens == 0) return absl::OkStatus();
  LETHE_CHECK(sequences.longest >= 1);
  if (queue->kind() == DeviceKind::kCuda) {
    [[maybe_unused]] const sv_read::CudaProblem problem = {
        .scales = scales,
        .q = q,
        .k = k,
        .v = v,
        .sequences = sequences,
        .heads = heads,
        .o = o,
        .num_heads = static_cast<int>(shape.num_heads),
        .key_dim = static_cast<int>(shape.key_dim),
        .value_dim = static_cast<int>(shape.value_dim),
        .room = 0};
    return LETHE_ON_CUDA(sv_read::SvReadCuda(queue, problem, most_distinct));
  }
  ReadOnHost(shape, scales, q, k, v, sequences, heads, o);
  return absl::OkStatus();
}

}  // namespace lethe
