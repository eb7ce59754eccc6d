// OvqRowDots: dot products of many rows with a few vectors, the inner loop of OVQ's read and merge.
//
// Equation:  dots[t][n] = rows[n] . x[t].
// Shapes:    rows: [num_rows][size]; x: kTokens vectors [size]; dots: kTokens arrays [num_rows].
// Units:     none.
// Requires:  size a multiple of 8.
// Rejects:   none.
// Effects:   writes dots.
// Numerics:  each product sums in 8 lanes (index mod 8), one fma chain each, and one fixed tree:
//            the bits do not depend on kTokens.
// Threads:   safe.
#ifndef LETHE_KERNELS_OVQ_OVQ_DOTS_H_
#define LETHE_KERNELS_OVQ_OVQ_DOTS_H_

#include <cstddef>

#include "hwy/highway.h"

#include "kernels/math/vector_math.h"

namespace lethe {

template <size_t kTokens>
void OvqRowDots(const float* rows, size_t num_rows, size_t size, const float* const* x,
                float* const* dots) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::FixedTag<float, 8> d;
  for (size_t n = 0; n < num_rows; ++n) {
    const float* row = rows + n * size;
    hn::Vec<decltype(d)> sums[kTokens];
    for (auto& sum : sums) sum = hn::Zero(d);
    for (size_t j = 0; j < size; j += 8) {
      const auto element = hn::LoadU(d, row + j);
      for (size_t t = 0; t < kTokens; ++t) {
        sums[t] = hn::MulAdd(element, hn::LoadU(d, x[t] + j), sums[t]);
      }
    }
    for (size_t t = 0; t < kTokens; ++t) dots[t][n] = simd::SumTree(sums[t]);
  }
}

}  // namespace lethe

#endif  // LETHE_KERNELS_OVQ_OVQ_DOTS_H_
