// PalimpsaFoldCuda: the CUDA form behind palimpsa_batch.h, with what benchmarks and tests may choose.
//
// Numerics: as palimpsa_batch.h; a PalimpsaTuning never changes a bit.
// Threads:  as palimpsa_batch.h.
#ifndef LETHE_KERNELS_PALIMPSA_PALIMPSA_CUDA_H_
#define LETHE_KERNELS_PALIMPSA_PALIMPSA_CUDA_H_

#include "absl/status/status.h"

#include "kernels/palimpsa/palimpsa_batch.h"

namespace lethe {

// Sequences up to this length take the step kernel, which keeps no tile of inputs.
inline constexpr int kPalimpsaStepTokens = 8;

struct PalimpsaTuning {
  int prefill_rows = 0;  // rows of V a thread of the prefill kernel holds: 1, 2, 4; 0 chooses
};

// Requires: what PalimpsaFold has checked; num_tokens > 0.
absl::Status PalimpsaFoldCuda(Queue* queue, const PalimpsaShape& shape, const PalimpsaBatch& batch,
                              float read_scale, const PalimpsaTuning& tuning);

}  // namespace lethe

#endif  // LETHE_KERNELS_PALIMPSA_PALIMPSA_CUDA_H_
