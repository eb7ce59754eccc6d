// WideColumns: the exact Gaussian kernel of one key with many, to double-double accuracy, for the
// proof; and sums over such rows.
//
// Equation:  Row: out_j = exp(-|x - y_j|^2 / sigma^2); WideDot: sum_j k_j w_j.
// Shapes:    keys [count][dim], x [dim]; out: padded_size() entries, those from count on 0; weights
//            likewise padded with 0.
// Units:     none.
// Requires:  |components| <= 2^400, sigma 2^-20..2^20; sizes as above (LETHE_DCHECK).
// Rejects:   none.
// Effects:   the columns hold the keys in an order of their own and overwrite them at the end.
// Numerics:  |error| of a kernel value <= WideKernelError(dim) = (dim + 16) 2^-103. Why: with u =
//            2^-53, differences are exact as two doubles (d, l), d^2 and its rest exact, 2 d l within
//            3u^2 d^2, l^2 <= u^2 d^2 dropped. Blocks of 8 components add the squares by TwoSum and
//            the rests in plain doubles: at most (b(b + 1)/2 + 4b + 7) u^2 of the block's sum, b =
//            its components, and 3u^2 for joining a block; sigma^2 is exact, the quotient 16u^2. In
//            all at most 8 (dim + 4) u^2 = (dim + 4) 2^-103 of t = |x - y|^2/sigma^2, and t e^-t <=
//            1/e; the exponential adds 2^-100; what underflows is below 2^-900. WideDot of k in [0,
//            1] and w >= 0: |error| <= (count + 8) 2^-104 sum w. RoundedDot of any w: |error| <=
//            (count + 8) 2^-52 sum |w|, the rounding of k and w to doubles included.
//            Cost per kernel value about 16 dim + 300 operations in lanes of four.
// Threads:   safe when const.
#ifndef LETHE_MEMORY_SVDD_WIDE_COLUMNS_H_
#define LETHE_MEMORY_SVDD_WIDE_COLUMNS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "kernels/base/wiped.h"
#include "memory/svdd/double_double.h"

namespace lethe::svdd {

// Double-doubles as two arrays.
struct WideArray {
  WipedVector<double> hi;
  WipedVector<double> lo;

  WideArray() = default;
  explicit WideArray(size_t size) : hi(size), lo(size) {}
  void Set(size_t i, const DoubleDouble& x) {
    hi[i] = x.hi;
    lo[i] = x.lo;
  }
  DoubleDouble At(size_t i) const { return {hi[i], lo[i]}; }
};

class WideColumns {
 public:
  WideColumns(int64_t dim, double sigma, size_t count);

  // Column j.
  void SetKey(size_t j, absl::Span<const double> key);

  size_t padded_size() const { return num_blocks_ * kBlock; }
  void Row(absl::Span<const double> key, WideArray* out) const;

 private:
  static constexpr size_t kBlock = 8;  // columns evaluated at once

  size_t dim_;
  double sigma_;
  size_t count_;
  size_t num_blocks_;
  WipedVector<double> keys_;  // [num_blocks][dim][kBlock]
};

double WideKernelError(int64_t dim);

DoubleDouble WideDot(const WideArray& row, const WideArray& weights);
// The high words of `row` with `weights`, in plain doubles.
double RoundedDot(const WideArray& row, absl::Span<const double> weights);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_WIDE_COLUMNS_H_
