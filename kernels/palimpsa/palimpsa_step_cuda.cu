#include <cuda_runtime.h>

#include "kernels/base/early_launch_cuda.cuh"
#include "kernels/palimpsa/palimpsa_cuda.cuh"

namespace lethe::palimpsa_cuda {
namespace {

constexpr int kColumns = 4;

// Rows of a thread: four 16-byte loads in flight with either form (measured: more threads of fewer
// loads and fewer of more are slower, and so are hints to the caches).
template <bool kPrecision>
constexpr int kStepRows = kPrecision ? 2 : 4;

// Grid: (sequence, head, row block) in one dimension, rows fastest; block: 128 threads, 4 * (32 /
// kLanes) * kStepRows rows; no shared memory. The state is in registers while the sequence's few
// tokens pass; it is read and written once.
template <int kLanes, bool kPrecision, bool kRead>
__global__ void __launch_bounds__(kThreads) PalimpsaStepKernel(const FoldArguments arguments) {
  constexpr int kRows = kStepRows<kPrecision>;
  constexpr int kPassRows = kWarpSize / kLanes;
  constexpr int kBlockRows = kWarps * kPassRows * kRows;
  cuda::WaitForEarlierKernels();
  const BlockPlace place = PlaceOfBlock(arguments, kBlockRows);
  if (place.length < arguments.min_length || place.length > arguments.max_length) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int group = lane / kPassRows;
  const int column = group * kColumns;
  const int row = place.first_row + static_cast<int>(threadIdx.x) / kWarpSize * kPassRows * kRows +
                  lane % kPassRows;
  RowState<kRows, kColumns> state;
  LoadState<kRows, kColumns, kPrecision>(arguments, place, row, kPassRows, column, &state);
  for (int t = 0; t < place.length; ++t) {
    const int64_t token_head = (place.first_token + t) * arguments.num_heads + place.head;
    float k[kColumns] = {};
    float q[kColumns] = {};
    if (column < arguments.key_dim) {
      const int64_t at = token_head * arguments.key_dim + column;
      LoadVector(arguments.batch.k + at, k);
      if constexpr (kRead) LoadVector(arguments.batch.q + at, q);
    }
    const float decay = Exp(arguments.batch.log_decay[token_head]);
    float k_squared[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) k_squared[j] = __fmul_rn(k[j], k[j]);
    float sums[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float value = 0.0f;
      float precision = 0.0f;
      if (row + r * kPassRows < arguments.value_dim) {
        const int64_t at = token_head * arguments.value_dim + row + r * kPassRows;
        value = arguments.batch.value[at];
        if constexpr (kPrecision) precision = arguments.batch.precision[at];
      }
      sums[r] = FoldToken<kPrecision, kRead>(decay, value, precision, k, k_squared, q, state.m[r],
                                             state.i_bar[r]);
    }
    if constexpr (kRead) {
      SumAcrossLanes<kLanes>(lane, sums);
      const int out_row = row + ValueOfGroup<kRows>(group) * kPassRows;
      if (HasValue<kRows>(group) && out_row < arguments.value_dim) {
        arguments.batch.out[token_head * arguments.value_dim + out_row] =
            __fmul_rn(arguments.read_scale, sums[0]);
      }
    }
  }
  StoreState<kRows, kColumns, kPrecision>(arguments, place, row, kPassRows, column, state);
}

template <int kLanes, bool kPrecision, bool kRead>
absl::Status Launch(Queue* queue, FoldArguments arguments) {
  constexpr int kBlockRows = kWarps * (kWarpSize / kLanes) * kStepRows<kPrecision>;
  arguments.num_row_blocks = (arguments.value_dim + kBlockRows - 1) / kBlockRows;
  const int64_t num_blocks =
      arguments.batch.num_sequences * arguments.num_heads * arguments.num_row_blocks;
  cuda::LaunchEarly(queue, PalimpsaStepKernel<kLanes, kPrecision, kRead>, num_blocks, kThreads, 0,
                    arguments);
  return queue->LaunchStatus("PalimpsaStepKernel");
}

template <int kLanes>
absl::Status LaunchForm(Queue* queue, const FoldArguments& arguments) {
  if (arguments.batch.q == nullptr) {
    return arguments.batch.precision != nullptr ? Launch<kLanes, true, false>(queue, arguments)
                                                : Launch<kLanes, false, false>(queue, arguments);
  }
  return arguments.batch.precision != nullptr ? Launch<kLanes, true, true>(queue, arguments)
                                              : Launch<kLanes, false, true>(queue, arguments);
}

}  // namespace

absl::Status LaunchStep(Queue* queue, const FoldArguments& arguments) {
  return arguments.key_dim <= 64 ? LaunchForm<16>(queue, arguments)
                                 : LaunchForm<32>(queue, arguments);
}

}  // namespace lethe::palimpsa_cuda
