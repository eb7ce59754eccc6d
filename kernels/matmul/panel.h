// MultiplyF32, MultiplyBf16: the register-tiled products behind Matmul; internal to kernels/matmul.
//
// Equation:  as in matmul.h.
// Shapes:    Problem's fields as in matmul.h; w is PackedMatrix::data() of the named storage.
// Units:     none.
// Requires:  num_rows >= 1; sizes checked by the caller.
// Rejects:   none.
// Effects:   write y.
// Numerics:  as in matmul.h. An accumulator that is parked in y between two blocks of k is an f32
//            either way, so blocking changes no bits.
// Threads:   safe.
#ifndef LETHE_KERNELS_MATMUL_PANEL_H_
#define LETHE_KERNELS_MATMUL_PANEL_H_

#include <cstdint>

namespace lethe::matmul {

inline constexpr int64_t kLanes = 8;
inline constexpr int64_t kPanelOutputs = 16;

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

void MultiplyF32(const Problem& problem);
void MultiplyBf16(const Problem& problem);

}  // namespace lethe::matmul

#endif  // LETHE_KERNELS_MATMUL_PANEL_H_
