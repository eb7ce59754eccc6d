// CheckMatrix, SameBits: what the fuzz targets of client/vector_file.h demand of an accepted file.
// Threads: safe.
#ifndef LETHE_TESTS_FUZZ_VECTOR_MATRIX_CHECK_H_
#define LETHE_TESTS_FUZZ_VECTOR_MATRIX_CHECK_H_

#include <cmath>
#include <cstring>

#include "client/vector_file.h"

#include "kernels/base/check.h"

namespace lethe::fuzz {

inline void CheckMatrix(const client::VectorMatrix& matrix) {
  LETHE_CHECK(matrix.num_rows >= 1 && matrix.num_columns >= 1);
  LETHE_CHECK(static_cast<int64_t>(matrix.values.size()) == matrix.num_rows * matrix.num_columns);
  for (const double value : matrix.values) {
    LETHE_CHECK(std::fabs(value) <= client::kVectorMagnitudeMax);
  }
}

inline bool SameBits(const client::VectorMatrix& a, const client::VectorMatrix& b) {
  return a.num_rows == b.num_rows && a.num_columns == b.num_columns &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(double)) == 0;
}

}  // namespace lethe::fuzz

#endif  // LETHE_TESTS_FUZZ_VECTOR_MATRIX_CHECK_H_
