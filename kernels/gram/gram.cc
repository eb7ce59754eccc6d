#include "kernels/gram/gram.h"

#include <cstddef>
#include <type_traits>

#include "hwy/highway.h"

#include "kernels/base/check.h"
#include "kernels/math/vector_math.h"

namespace lethe {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D4 = hn::FixedTag<double, 4>;
using V4 = hn::Vec<D4>;
constexpr size_t kLanes = 8;  // over components: two vectors of four
constexpr size_t kKeysAtOnce = 4;

template <typename T>
HWY_INLINE V4 LoadWide(const T* from) {
  const D4 d;
  if constexpr (std::is_same_v<T, float>) {
    return hn::PromoteTo(d, hn::LoadU(hn::FixedTag<float, 4>(), from));
  } else {
    return hn::LoadU(d, from);
  }
}

// Adds the squared differences of 8 components to the lanes.
template <typename T>
HWY_INLINE void Accumulate(const T* x, const T* y, V4* low, V4* high) {
  const V4 a = hn::Sub(LoadWide(x), LoadWide(y));
  const V4 b = hn::Sub(LoadWide(x + 4), LoadWide(y + 4));
  *low = hn::MulAdd(a, a, *low);
  *high = hn::MulAdd(b, b, *high);
}

// The first two levels of kernels/math's tree for four keys, then the last for all at once.
HWY_INLINE V4 JoinLanes(const V4* low, const V4* high) {
  const D4 d;
  const V4 a = hn::Add(low[0], high[0]);
  const V4 b = hn::Add(low[1], high[1]);
  const V4 c = hn::Add(low[2], high[2]);
  const V4 e = hn::Add(low[3], high[3]);
  const V4 ab = hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
  const V4 ce = hn::Add(hn::ConcatLowerLower(d, e, c), hn::ConcatUpperUpper(d, e, c));
  return hn::Add(hn::ConcatEven(d, ce, ab), hn::ConcatOdd(d, ce, ab));
}

// Squared distances of x to four keys; rows may be the same key more than once.
template <typename T>
HWY_INLINE V4 SquaredDistances(const T* x, const T* const* rows, size_t dim) {
  const D4 d;
  V4 low[kKeysAtOnce];
  V4 high[kKeysAtOnce];
  for (size_t j = 0; j < kKeysAtOnce; ++j) low[j] = high[j] = hn::Zero(d);
  const size_t whole = dim / kLanes * kLanes;
  for (size_t c = 0; c < whole; c += kLanes) {
    for (size_t j = 0; j < kKeysAtOnce; ++j) Accumulate(x + c, rows[j] + c, &low[j], &high[j]);
  }
  if (whole < dim) {
    T x_tail[kLanes] = {};
    for (size_t c = whole; c < dim; ++c) x_tail[c - whole] = x[c];
    for (size_t j = 0; j < kKeysAtOnce; ++j) {
      T y_tail[kLanes] = {};
      for (size_t c = whole; c < dim; ++c) y_tail[c - whole] = rows[j][c];
      Accumulate(x_tail, y_tail, &low[j], &high[j]);
    }
  }
  return JoinLanes(low, high);
}

// finish: from t to what is stored.
template <typename T, typename Finish>
void RowImpl(absl::Span<const T> x, absl::Span<const T> keys, double sigma, absl::Span<double> out,
             const Finish& finish) {
  const size_t dim = x.size();
  LETHE_CHECK(dim >= 1 && keys.size() == out.size() * dim);
  const D4 d;
  const V4 sigma_squared = hn::Set(d, sigma * sigma);
  for (size_t i = 0; i < out.size(); i += kKeysAtOnce) {
    const size_t here = out.size() - i < kKeysAtOnce ? out.size() - i : kKeysAtOnce;
    const T* rows[kKeysAtOnce];
    for (size_t j = 0; j < kKeysAtOnce; ++j) {
      rows[j] = keys.data() + (i + (j < here ? j : 0)) * dim;
    }
    const V4 t = hn::Div(SquaredDistances(x.data(), rows, dim), sigma_squared);
    const V4 value = finish(t);
    if (here == kKeysAtOnce) {
      hn::StoreU(value, d, out.data() + i);
    } else {
      double buffer[kKeysAtOnce];
      hn::StoreU(value, d, buffer);
      for (size_t j = 0; j < here; ++j) out[i + j] = buffer[j];
    }
  }
}

HWY_INLINE V4 Kernel(V4 t) { return simd::Exp(D4(), hn::Neg(t)); }

}  // namespace

void GramRow(absl::Span<const double> x, absl::Span<const double> keys, double sigma,
             absl::Span<double> out) {
  RowImpl<double>(x, keys, sigma, out, [](V4 t) { return Kernel(t); });
}

void GramRow(absl::Span<const float> x, absl::Span<const float> keys, double sigma,
             absl::Span<double> out) {
  RowImpl<float>(x, keys, sigma, out, [](V4 t) { return Kernel(t); });
}

void ScaledDistances(absl::Span<const double> x, absl::Span<const double> keys, double sigma,
                     absl::Span<double> out) {
  RowImpl<double>(x, keys, sigma, out, [](V4 t) { return t; });
}

double GramErrorBound(int64_t dim) {
  // With u = 2^-53: the difference costs 2u on its square, the chain and the tree ceil(dim/8) + 3,
  // sigma^2 and the division 2, one spare. An error of r in t moves e^-t by at most r t e^-t <= r/e
  // < 0.37 r; the exponential itself is good to 1 ulp = 2u.
  const int64_t chain = (dim + 7) / 8;
  const double terms = static_cast<double>(chain) + 8.0;
  return (0.37 * terms + 2.0) * 0x1.0p-53;
}

}  // namespace lethe
