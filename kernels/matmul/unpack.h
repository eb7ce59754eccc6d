// Unpack: the weights of a PackedMatrix in the order that Pack took them.
//
// Equation:  none.
// Shapes:    [num_outputs][num_inputs] f32 row-major.
// Units:     none.
// Requires:  a matrix of Pack (LETHE_CHECK).
// Rejects:   none.
// Effects:   none.
// Numerics:  every bit that Pack was given.
// Threads:   safe.
#ifndef LETHE_KERNELS_MATMUL_UNPACK_H_
#define LETHE_KERNELS_MATMUL_UNPACK_H_

#include <vector>

#include "kernels/matmul/matmul.h"

namespace lethe {

std::vector<float> Unpack(const PackedMatrix& matrix);

}  // namespace lethe

#endif  // LETHE_KERNELS_MATMUL_UNPACK_H_
