#include "kernels/vla/vla_chunk_cuda.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

absl::Status RunSegment(Queue* queue, const VlaChunkSegment& segment) {
  LETHE_RETURN_IF_ERROR(VlaChunkGram(queue, segment));
  LETHE_RETURN_IF_ERROR(VlaChunkPrefix(queue, segment));
  LETHE_RETURN_IF_ERROR(VlaChunkInvert(queue, segment));
  LETHE_RETURN_IF_ERROR(VlaChunkKeys(queue, segment));
  LETHE_RETURN_IF_ERROR(VlaChunkFold(queue, segment));
  if (segment.batch.out == nullptr) return absl::OkStatus();
  return VlaChunkRead(queue, segment);
}

}  // namespace

float VlaChunkInverseUnit(double lambda0) {
  return static_cast<float>(std::ldexp(1.0, 10 + std::ilogb(std::sqrt(lambda0))));
}

VlaChunkWork VlaChunkCut(const VlaOptions& options, void* workspace, int64_t num_chunks) {
  const int64_t count = num_chunks * options.num_heads;
  const int64_t dim = options.key_dim;
  const int64_t blocks = dim / 16 * (dim / 16);
  VlaChunkWork work;
  work.gram = static_cast<float*>(workspace);
  work.transitions = reinterpret_cast<uint16_t*>(work.gram + count * VlaChunkPacked(dim));
  work.gains = work.transitions + count * dim * dim;
  work.states = work.gains + count * dim * dim;
  work.queries = work.states + count * dim * dim;
  work.reads = work.queries + count * kVlaChunkTokens * dim;
  work.gain_scales = reinterpret_cast<float*>(work.reads + count * kVlaChunkTokens * dim);
  work.state_scales = work.gain_scales + count * 2 * blocks;
  work.query_scales = work.state_scales + count * 2 * blocks;
  work.read_scales = work.query_scales + count * kVlaChunkTokens;
  return work;
}

absl::Status VlaChunkCuda(Queue* queue, const VlaOptions& options, const VlaChunkBatch& batch,
                          void* workspace, int64_t workspace_bytes) {
  const int64_t num_chunks = batch.num_tokens / kVlaChunkTokens;
  const int64_t most = workspace_bytes / VlaChunkWorkspaceBytes(options, kVlaChunkTokens);
  for (int64_t begin = 0; begin < num_chunks; begin += most) {
    const int64_t count = std::min(most, num_chunks - begin);
    LETHE_RETURN_IF_ERROR(
        RunSegment(queue, {options, batch, VlaChunkCut(options, workspace, count), begin, count}));
  }
  return VlaChunkInverse(queue, options, batch);
}

}  // namespace lethe
