#include "memory/svdd/wide_columns.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "memory/svdd/wide_lanes.h"

namespace lethe::svdd {
namespace {

using D4 = hn::FixedTag<double, 4>;
using V4 = hn::Vec<D4>;
using Wide4 = WideLanes<V4>;

constexpr size_t kComponentsAtOnce = 8;  // joined in plain lanes before a double-double addition

// Adds the squares of `size` differences, at most kComponentsAtOnce, to *sum. y: the components of
// four columns, `stride` apart.
HWY_INLINE void AddSquares(const double* x, const double* y, size_t stride, size_t size,
                           Wide4* sum) {
  const D4 d;
  Wide4 block = {hn::Zero(d), hn::Zero(d)};
  for (size_t c = 0; c < size; ++c) {
    const Wide4 difference = TwoSumLanes(hn::Set(d, x[c]), hn::Neg(hn::LoadU(d, y + c * stride)));
    const Wide4 square = TwoProdLanes(difference.hi, difference.hi);
    const V4 rest = hn::MulAdd(hn::Add(difference.hi, difference.hi), difference.lo, square.lo);
    const Wide4 added = TwoSumLanes(block.hi, square.hi);
    block.hi = added.hi;
    block.lo = hn::Add(block.lo, hn::Add(added.lo, rest));
  }
  *sum = AddLanes(*sum, QuickTwoSumLanes(block.hi, block.lo));
}

// -(x / y), as double_double.h divides.
HWY_INLINE Wide4 NegatedQuotient(const Wide4& x, const Wide4& y) {
  const V4 quotient = hn::Div(x.hi, y.hi);
  const Wide4 high = TwoProdLanes(y.hi, quotient);
  const Wide4 product = QuickTwoSumLanes(high.hi, hn::MulAdd(y.lo, quotient, high.lo));
  const V4 rest = hn::Add(hn::Sub(x.hi, product.hi), hn::Sub(x.lo, product.lo));
  const Wide4 value = QuickTwoSumLanes(quotient, hn::Div(rest, y.hi));
  return {hn::Neg(value.hi), hn::Neg(value.lo)};
}

// Sum of the lanes, in double-double.
DoubleDouble SumOfWideLanes(const Wide4& x) {
  double hi[4];
  double lo[4];
  const D4 d;
  hn::StoreU(x.hi, d, hi);
  hn::StoreU(x.lo, d, lo);
  DoubleDouble sum;
  for (size_t lane = 0; lane < 4; ++lane) sum += DoubleDouble(hi[lane], lo[lane]);
  return sum;
}

}  // namespace

WideColumns::WideColumns(int64_t dim, double sigma, size_t count)
    : dim_(static_cast<size_t>(dim)),
      sigma_(sigma),
      count_(count),
      num_blocks_((count + kBlock - 1) / kBlock),
      keys_(num_blocks_ * kBlock * dim_) {}

void WideColumns::SetKey(size_t j, absl::Span<const double> key) {
  LETHE_DCHECK(j < count_ && key.size() == dim_);
  double* block = keys_.data() + j / kBlock * kBlock * dim_;
  for (size_t c = 0; c < dim_; ++c) block[c * kBlock + j % kBlock] = key[c];
}

void WideColumns::Row(absl::Span<const double> key, WideArray* out) const {
  LETHE_DCHECK(key.size() == dim_ && out->hi.size() == padded_size());
  const D4 d;
  const ExpCoefficients& inverse = InverseFactorials();
  const Wide4 square_of_sigma = SetLanes(d, TwoProd(sigma_, sigma_));
  for (size_t block = 0; block < num_blocks_; ++block) {
    const double* columns = keys_.data() + block * kBlock * dim_;
    Wide4 low = {hn::Zero(d), hn::Zero(d)};
    Wide4 high = low;
    for (size_t c = 0; c < dim_; c += kComponentsAtOnce) {
      const size_t size = std::min(kComponentsAtOnce, dim_ - c);
      AddSquares(&key[c], columns + c * kBlock, kBlock, size, &low);
      AddSquares(&key[c], columns + c * kBlock + 4, kBlock, size, &high);
    }
    low = ExpLanes(d, NegatedQuotient(low, square_of_sigma), inverse);
    high = ExpLanes(d, NegatedQuotient(high, square_of_sigma), inverse);
    hn::StoreU(low.hi, d, &out->hi[block * kBlock]);
    hn::StoreU(low.lo, d, &out->lo[block * kBlock]);
    hn::StoreU(high.hi, d, &out->hi[block * kBlock + 4]);
    hn::StoreU(high.lo, d, &out->lo[block * kBlock + 4]);
  }
  std::fill(out->hi.begin() + static_cast<std::ptrdiff_t>(count_), out->hi.end(), 0.0);
  std::fill(out->lo.begin() + static_cast<std::ptrdiff_t>(count_), out->lo.end(), 0.0);
}

double WideKernelError(int64_t dim) { return (static_cast<double>(dim) + 16.0) * 0x1.0p-103; }

DoubleDouble WideDot(const WideArray& row, const WideArray& weights) {
  LETHE_DCHECK(row.hi.size() == weights.hi.size() && row.hi.size() % 8 == 0);
  const D4 d;
  Wide4 even = {hn::Zero(d), hn::Zero(d)};
  Wide4 odd = even;
  const auto product = [&](size_t j) {
    return MultiplyLanes<V4>({hn::LoadU(d, &row.hi[j]), hn::LoadU(d, &row.lo[j])},
                             {hn::LoadU(d, &weights.hi[j]), hn::LoadU(d, &weights.lo[j])});
  };
  for (size_t j = 0; j < row.hi.size(); j += 8) {
    even = AddLanes(even, product(j));
    odd = AddLanes(odd, product(j + 4));
  }
  return SumOfWideLanes(AddLanes(even, odd));
}

double RoundedDot(const WideArray& row, absl::Span<const double> weights) {
  LETHE_DCHECK(row.hi.size() == weights.size() && weights.size() % 8 == 0);
  const D4 d;
  V4 even = hn::Zero(d);
  V4 odd = hn::Zero(d);
  for (size_t j = 0; j < weights.size(); j += 8) {
    even = hn::MulAdd(hn::LoadU(d, &row.hi[j]), hn::LoadU(d, &weights[j]), even);
    odd = hn::MulAdd(hn::LoadU(d, &row.hi[j + 4]), hn::LoadU(d, &weights[j + 4]), odd);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

}  // namespace lethe::svdd
