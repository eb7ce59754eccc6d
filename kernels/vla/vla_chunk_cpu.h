// VlaChunkCpu: VlaChunk on the host, sequence by sequence. Arguments as there, already validated.
// Threads: safe for distinct states.
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_CPU_H_
#define LETHE_KERNELS_VLA_VLA_CHUNK_CPU_H_

#include "kernels/vla/vla_chunk.h"

namespace lethe {

void VlaChunkCpu(const VlaOptions& options, const VlaChunkBatch& batch);

}  // namespace lethe

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_CPU_H_
