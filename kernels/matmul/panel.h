// Kernel, SupportedKernels: the register-tiled products behind Matmul, one for each vector width that
// this build holds and this processor has; internal to kernels/matmul.
//
// Equation:  as in matmul.h.
// Shapes:    Problem's fields as in matmul.h; w is PackedMatrix::data() of the named storage.
// Units:     none.
// Requires:  num_rows >= 1; sizes checked by the caller.
// Rejects:   none.
// Effects:   write y.
// Numerics:  as in matmul.h: a lane is one output's chain, so every width gives the same bits. An
//            accumulator that is parked in y between two blocks of k is an f32 either way, so blocking
//            changes none.
// Threads:   safe.
#ifndef LETHE_KERNELS_MATMUL_PANEL_H_
#define LETHE_KERNELS_MATMUL_PANEL_H_

#include <cstdint>

#include "absl/types/span.h"

namespace lethe::matmul {

inline constexpr int64_t kPanelOutputs = 16;
inline constexpr int64_t kHalfPanel =
    8;  // BF16 panels keep outputs i and kHalfPanel + i side by side

inline int64_t NumPanels(int64_t num_outputs) {
  return (num_outputs + kPanelOutputs - 1) / kPanelOutputs;
}

struct Problem {
  const float* x;  // [num_rows][num_inputs]
  int64_t num_rows;
  const void* w;  // [panel][num_inputs][16]
  int64_t num_outputs;
  int64_t num_inputs;
  float* y;  // [num_rows][num_outputs]
};

struct Kernel {
  int64_t lanes;  // f32 numbers in a vector register
  void (*multiply_f32)(const Problem& problem);
  void (*multiply_bf16)(const Problem& problem);
};

// Ascending width, never empty; Matmul takes the last.
absl::Span<const Kernel> SupportedKernels();

}  // namespace lethe::matmul

#endif  // LETHE_KERNELS_MATMUL_PANEL_H_
