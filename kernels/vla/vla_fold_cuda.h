// VlaFoldCuda, VlaFoldStepCuda: launchers of VlaFold's kernels; vla_fold.cc validates and chooses.
//
// Requires: as vla_fold.h; VlaFoldStepCuda: no sequence longer than one token.
// Effects:  enqueued on the queue's stream. Both give the same bits.
// Threads:  the queue's.   Numerics: vla_fold.h.
#ifndef LETHE_KERNELS_VLA_VLA_FOLD_CUDA_H_
#define LETHE_KERNELS_VLA_VLA_FOLD_CUDA_H_

#include "kernels/vla/vla_fold.h"

namespace lethe {

inline constexpr int64_t kVlaFoldMaxDim = 128;

absl::Status VlaFoldCuda(Queue* queue, const VlaOptions& options, const VlaBatch& batch);
absl::Status VlaFoldStepCuda(Queue* queue, const VlaOptions& options, const VlaBatch& batch);

}  // namespace lethe

#endif  // LETHE_KERNELS_VLA_VLA_FOLD_CUDA_H_
