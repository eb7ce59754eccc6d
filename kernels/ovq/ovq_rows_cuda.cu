// The slots at the start of a segment as the reads see them.
#include <cuda_runtime.h>

#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_read_cuda.cuh"

namespace lethe {
namespace {

constexpr int kThreads = 256;

// Grid: (parts, heads, sequences). A thread takes 16 elements of a slot.
template <int kDim, bool kFull>
__global__ void OvqRowsKernel(const __grid_constant__ OvqKernelArgs args) {
  const int sequence_index = static_cast<int>(blockIdx.z);
  const int head = static_cast<int>(blockIdx.y);
  const ovq::Sequence sequence = ovq::GetSequence(args, sequence_index);
  if (!ovq::IsPrefill(sequence)) return;
  const int64_t chain = static_cast<int64_t>(sequence_index) * args.num_heads + head;
  if (blockIdx.x == 0 && threadIdx.x < kOvqMaxMergeBlocks) {
    args.progress[chain * kOvqMaxMergeBlocks + threadIdx.x] = args.first_chunk;
  }
  if (args.first_chunk >= sequence.num_chunks) return;
  constexpr int kSteps = kDim / 16;
  const int first = static_cast<int>(blockIdx.x) * ovq::kPartSlots<kDim>;
  const int num_slots =
      min(ovq::kPartSlots<kDim>, ovq::FilledBefore(args, sequence, args.first_chunk) - first);
  const int64_t state = (sequence.state * args.num_heads + head) * args.max_slots + first;
  const int64_t row = ovq::RowsOfChain(args, chain) + first;
  for (int i = static_cast<int>(threadIdx.x); i < num_slots * kSteps; i += kThreads) {
    const int slot = i / kSteps;
    const int step = i % kSteps;
    uint4 key[2], value[2];
    ovq::LoadKeyStep<kFull>(args.states.keys + (state + slot) * args.key_dim, step, args.key_dim,
                            key);
    ovq::LoadValueStep<kFull>(args.states.values + (state + slot) * args.value_dim, step,
                              args.value_dim, value);
    auto* keys = reinterpret_cast<uint4*>(args.rows + (row + slot) * (2 * kDim));
    uint4* values = keys + kDim / 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      keys[2 * step + half] = key[half];
      values[2 * step + half] = value[half];
    }
    if (step == 0) {
      args.row_biases[row + slot] = ovq::Log2(static_cast<float>(args.states.counts[state + slot]));
    }
  }
}

template <int kDim, bool kFull>
absl::Status Launch(Queue* queue, const OvqKernelArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.num_parts), static_cast<unsigned>(args.num_heads),
                  static_cast<unsigned>(args.num_sequences));
  OvqRowsKernel<kDim, kFull><<<grid, kThreads, 0, queue->stream()>>>(args);
  return queue->LaunchStatus("OvqRowsKernel");
}

}  // namespace

absl::Status OvqLaunchRows(Queue* queue, const OvqKernelArgs& args, int dim) {
  const bool is_full = args.key_dim == dim && args.value_dim == dim;
  if (dim == 64) return is_full ? Launch<64, true>(queue, args) : Launch<64, false>(queue, args);
  return is_full ? Launch<128, true>(queue, args) : Launch<128, false>(queue, args);
}

}  // namespace lethe
