// The pending chunks after a prefill.
#include <cuda_runtime.h>

#include "kernels/ovq/ovq_cuda.cuh"

namespace lethe {
namespace {

using ovq::GetSequence;
using ovq::Sequence;

// Grid: (heads, sequences). The tokens behind the last full chunk become the pending ones; after a
// merge nothing of the merged ones stays.
__global__ void OvqAppendKernel(const __grid_constant__ OvqKernelArgs args) {
  const int head = static_cast<int>(blockIdx.x);
  const Sequence sequence = GetSequence(args, static_cast<int>(blockIdx.y));
  if (sequence.length <= 1) return;  // the step or the merge has seen to it
  const int merged = sequence.num_merges * args.chunk_tokens;
  const int size = sequence.pending + sequence.length - merged;
  const int64_t chunk = (sequence.state * args.num_heads + head) * args.chunk_tokens;
  const int first = merged == 0 ? sequence.pending : 0;
  const int last = merged == 0 ? size : args.chunk_tokens;
  const int columns = (args.key_dim + args.value_dim) / 4;
  for (int i = static_cast<int>(threadIdx.x); i < (last - first) * columns;
       i += static_cast<int>(blockDim.x)) {
    const int row = first + i / columns;
    const int element = i % columns * 4;
    const bool is_key = element < args.key_dim;
    const int column = is_key ? element : element - args.key_dim;
    float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (row < size) {
      const float* from = is_key ? ovq::KeyRow(args, sequence, head, merged + row)
                                 : ovq::ValueRow(args, sequence, head, merged + row);
      x = *reinterpret_cast<const float4*>(from + column);
    }
    float* to = is_key ? args.states.pending_keys + (chunk + row) * args.key_dim
                       : args.states.pending_values + (chunk + row) * args.value_dim;
    *reinterpret_cast<float4*>(to + column) = x;
  }
}

}  // namespace

absl::Status OvqLaunchAppend(Queue* queue, const OvqKernelArgs& args) {
  OvqAppendKernel<<<dim3(static_cast<unsigned>(args.num_heads),
                         static_cast<unsigned>(args.num_sequences)),
                    128, 0, queue->stream()>>>(args);
  return queue->LaunchStatus("OvqAppendKernel");
}

}  // namespace lethe
