// What the forms of VlaChunk's stage keys have in common: their arguments.
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_KEYS_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_CHUNK_KEYS_CUDA_CUH_

#include <cstdint>

#include <cuda_runtime.h>

#include "kernels/base/queue.h"

namespace lethe {
namespace vla_chunk {

struct KeysArguments {
  const float* q;  // of the segment's first token; null: no reads
  const float* k;
  const float* v;
  const float* directions;  // null for kRls
  int64_t token_stride;
  int num_heads;
  const float* inverse;  // packed L^-1, times unit
  float unit;
  float gram_scale;  // as InverseScale of the largest that G's diagonal should be
  uint4* transitions;
  uint4* gains;
  float2* gain_scales;
  uint4* queries;
  float* query_scales;
  uint4* reads;
  float* read_scales;
};

}  // namespace vla_chunk

// kVla on a device of compute capability 9.0; a block for each chunk and head.
void VlaChunkLaunchKeysSm90(Queue* queue, int64_t num_blocks, int64_t dim,
                            const vla_chunk::KeysArguments& arguments);

}  // namespace lethe

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_KEYS_CUDA_CUH_
