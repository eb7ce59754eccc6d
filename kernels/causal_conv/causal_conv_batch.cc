#include "kernels/causal_conv/causal_conv_batch.h"

#include <algorithm>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/on_cuda.h"
#include "kernels/causal_conv/causal_conv.h"
#include "kernels/causal_conv/causal_conv_cuda.h"

namespace lethe {
namespace {

constexpr int64_t kWidthMax = 8;
constexpr int64_t kSequencesMax = 65535;  // of a launch's grid

void ConvolveOnHost(const CausalConvPacked& packed, const float* z,
                    const PackedSequences& sequences, float* pool, float* y) {
  const int64_t row = packed.num_channels;
  const int64_t num_places = packed.width - 1;
  std::vector<float> w;
  for (int64_t c = 0; c < row; ++c) {
    for (int64_t j = 0; j < packed.width; ++j) w.push_back(packed.taps[j * row + c]);
  }
  const CausalConvWeights weights(
      w, absl::MakeConstSpan(packed.bias, packed.bias != nullptr ? static_cast<size_t>(row) : 0),
      packed.width);
  for (int64_t s = 0; s < sequences.num_sequences; ++s) {
    const int64_t first = sequences.offsets[s];
    const int64_t count = sequences.offsets[s + 1] - first;
    const int64_t rank = sequences.ranks[s];
    float* slot = pool + sequences.slots[s] * num_places * row;
    const auto place = [&](int64_t at) { return slot + at % num_places * row; };
    std::vector<float> tail;
    for (int64_t at = std::max<int64_t>(0, rank - num_places); at < rank; ++at) {
      tail.insert(tail.end(), place(at), place(at) + row);
    }
    CausalConvState state(row, packed.width);
    state.Append(tail);
    const auto size = static_cast<size_t>(count * row);
    CausalConv(weights, absl::MakeConstSpan(z + first * row, size), &state,
               absl::MakeSpan(y + first * row, size));
    for (int64_t t = std::max<int64_t>(0, count - num_places); t < count; ++t) {
      std::copy_n(z + (first + t) * row, row, place(rank + t));
    }
  }
}

}  // namespace

absl::Status CausalConvBatch(Queue* queue, const CausalConvPacked& weights, const float* z,
                             const PackedSequences& sequences, float* pool, float* y) {
  LETHE_CHECK(weights.num_channels >= 1 && weights.width >= 1 && weights.width <= kWidthMax);
  LETHE_CHECK(sequences.num_sequences >= 0 && sequences.num_sequences <= kSequencesMax);
  if (sequences.num_tokens == 0) return absl::OkStatus();
  LETHE_CHECK(sequences.longest >= 1);
  if (queue->kind() == DeviceKind::kCuda) {
    [[maybe_unused]] const causal_conv::CudaProblem problem = {
        .taps = weights.taps,
        .bias = weights.bias,
        .z = z,
        .sequences = sequences,
        .pool = pool,
        .y = y,
        .num_channels = static_cast<int>(weights.num_channels),
        .width = static_cast<int>(weights.width)};
    return LETHE_ON_CUDA(causal_conv::CausalConvCuda(queue, problem));
  }
  ConvolveOnHost(weights, z, sequences, pool, y);
  return absl::OkStatus();
}

}  // namespace lethe
