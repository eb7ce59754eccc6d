// simd::Exp, simd::Log, … : the functions of math.h on Highway vectors, for kernels that inline
// them.
//
// Equation:  as in math.h.
// Shapes:    D is any Highway tag of float or double; vectors of any width.
// Units:     natural logarithms.
// Requires:  a build for x86-64-v3 (explicit fma).
// Rejects:   none.
// Effects:   none.
// Numerics:  lane by lane the bits of math.h, for every width: only IEEE operations and explicit
//            fma, no estimates, no branches on a lane's neighbours.
// Threads:   safe.
#ifndef LETHE_KERNELS_MATH_VECTOR_MATH_H_
#define LETHE_KERNELS_MATH_VECTOR_MATH_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"

#include "kernels/math/math_constants.h"

namespace lethe::simd {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using Vector = hn::Vec<D>;

// c[0] + c[1] x + … , one fma chain from the highest coefficient down.
template <class D, typename T, size_t kNum>
HWY_INLINE Vector<D> Polynomial(D d, Vector<D> x, const T (&c)[kNum]) {
  Vector<D> sum = hn::Set(d, c[kNum - 1]);
  for (size_t i = kNum - 1; i-- > 0;) sum = hn::MulAdd(sum, x, hn::Set(d, c[i]));
  return sum;
}

// 2^n for integers n in the range of normal exponents. 1.5 * kRoundToInt keeps a negative n's low
// bits right.
template <class D>
HWY_INLINE Vector<D> PowerOfTwo(D d, Vector<D> n) {
  using C = MathConstants<hn::TFromD<D>>;
  const hn::RebindToUnsigned<D> du;
  const auto shifted =
      hn::Add(n, hn::Set(d, C::kRoundToInt * hn::TFromD<D>{1.5} + C::kExponentBias));
  return hn::BitCast(d, hn::ShiftLeft<C::kMantissaBits>(hn::BitCast(du, shifted)));
}

// x = n ln2 + r with |r| <= ln(2)/2 (a little more from rounding); e = e^r - 1.
template <class D>
HWY_INLINE void ReduceExp(D d, Vector<D> x, Vector<D>* n, Vector<D>* e) {
  using C = MathConstants<hn::TFromD<D>>;
  *n = hn::Round(hn::Mul(x, hn::Set(d, C::kLog2E)));
  auto r = hn::NegMulAdd(*n, hn::Set(d, C::kLn2High), x);
  r = hn::NegMulAdd(*n, hn::Set(d, C::kLn2Low), r);
  *e = hn::MulAdd(hn::Mul(r, r), Polynomial(d, r, C::kExpTail), r);
}

// y, or x where x is NaN: which of two NaNs a product gives is the compiler's choice of operands.
template <class D>
HWY_INLINE Vector<D> KeepNan(D, Vector<D> x, Vector<D> y) {
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

template <class D>
HWY_INLINE Vector<D> Exp(D d, Vector<D> x) {
  using T = hn::TFromD<D>;
  using C = MathConstants<T>;
  const auto clamped = hn::Min(hn::Max(x, hn::Set(d, C::kExpMin)), hn::Set(d, C::kExpMax));
  Vector<D> n, e;
  ReduceExp(d, clamped, &n, &e);
  // Two factors, because 2^n alone does not reach the ends of the range.
  const auto n_half = hn::Round(hn::Mul(n, hn::Set(d, T{0.5})));
  const auto one_plus = hn::Add(e, hn::Set(d, T{1}));
  const auto y =
      hn::Mul(hn::Mul(one_plus, PowerOfTwo(d, n_half)), PowerOfTwo(d, hn::Sub(n, n_half)));
  const auto normal = hn::Set(d, std::numeric_limits<T>::min());
  const auto flushed = hn::IfThenElse(hn::Lt(y, normal), hn::Zero(d), y);
  return KeepNan(d, x, flushed);
}

template <class D>
HWY_INLINE Vector<D> Log(D d, Vector<D> x) {
  using T = hn::TFromD<D>;
  using C = MathConstants<T>;
  const hn::RebindToUnsigned<D> du;
  using U = hn::TFromD<decltype(du)>;
  const auto zero = hn::Zero(d);
  const auto infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  // Subnormal arguments are scaled into the normal range first.
  const auto is_small = hn::Lt(x, hn::Set(d, std::numeric_limits<T>::min()));
  const auto scaled = hn::IfThenElse(is_small, hn::Mul(x, hn::Set(d, C::kRoundToInt)), x);
  const auto scale_log2 =
      hn::IfThenElse(is_small, hn::Set(d, static_cast<T>(C::kMantissaBits)), zero);
  // x = 2^n (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
  const auto bits = hn::Add(hn::BitCast(du, scaled), hn::Set(du, C::kOneBits - C::kSqrtHalfBits));
  const auto n_bits = hn::ShiftRight<C::kMantissaBits>(bits);
  const auto round_bits = hn::BitCast(du, hn::Set(d, C::kRoundToInt));
  const auto n_biased =
      hn::Sub(hn::BitCast(d, hn::Or(n_bits, round_bits)), hn::Set(d, C::kRoundToInt));
  const auto n = hn::Sub(hn::Sub(n_biased, hn::Set(d, C::kExponentBias)), scale_log2);
  const auto mantissa_mask = hn::Set(du, static_cast<U>((U{1} << C::kMantissaBits) - 1));
  const auto m =
      hn::BitCast(d, hn::Add(hn::And(bits, mantissa_mask), hn::Set(du, C::kSqrtHalfBits)));
  const auto f = hn::Sub(m, hn::Set(d, T{1}));
  // log(1+f) = 2 atanh(s) = f - f^2/2 + s (f^2/2 + z tail(z)), z = s^2.
  const auto s = hn::Div(f, hn::Add(f, hn::Set(d, T{2})));
  const auto z = hn::Mul(s, s);
  const auto half_square = hn::Mul(hn::Mul(f, hn::Set(d, T{0.5})), f);
  const auto tail = hn::MulAdd(z, Polynomial(d, z, C::kLogTail), half_square);
  const auto small = hn::MulAdd(n, hn::Set(d, C::kLn2Low), hn::Mul(s, tail));
  auto y = hn::Sub(f, hn::Sub(half_square, small));
  y = hn::MulAdd(n, hn::Set(d, C::kLn2High), y);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), y);
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  const auto nan = hn::Set(d, std::numeric_limits<T>::quiet_NaN());
  return hn::IfThenElse(hn::Ge(x, zero), y, nan);
}

// With e = e^-|x| <= 1 neither branch overflows: 1/(1+e) for x >= 0, e/(1+e) below.
template <class D>
HWY_INLINE Vector<D> Sigmoid(D d, Vector<D> x) {
  const auto one = hn::Set(d, hn::TFromD<D>{1});
  const auto e = Exp(d, hn::Neg(hn::Abs(x)));
  const auto numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return KeepNan(d, x, hn::Div(numerator, hn::Add(one, e)));
}

template <class D>
HWY_INLINE Vector<D> Silu(D d, Vector<D> x) {
  // Below -128 the sigmoid is 0; the bound keeps -inf from meeting it.
  const auto bound = hn::Set(d, hn::TFromD<D>{-128});
  const auto factor = hn::IfThenElse(hn::Lt(x, bound), bound, x);
  return KeepNan(d, x, hn::Mul(factor, Sigmoid(d, x)));
}

// max(x, 0) + log1p(e^-|x|), the logarithm from 2 atanh(e / (2 + e)).
template <class D>
HWY_INLINE Vector<D> Softplus(D d, Vector<D> x) {
  using T = hn::TFromD<D>;
  static_assert(std::is_same_v<T, float>, "the tail is fitted for f32");
  const auto e = Exp(d, hn::Neg(hn::Abs(x)));
  const auto s = hn::Div(e, hn::Add(e, hn::Set(d, T{2})));
  const auto z = hn::Mul(s, s);
  const auto tail = hn::Mul(z, Polynomial(d, z, MathConstants<T>::kLog1pTail));
  const auto log1p = hn::MulAdd(s, tail, hn::Add(s, s));
  const auto positive = hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Zero(d));
  return KeepNan(d, x, hn::Add(positive, log1p));
}

template <class D>
HWY_INLINE Vector<D> Elu(D d, Vector<D> x) {
  using T = hn::TFromD<D>;
  const auto one = hn::Set(d, T{1});
  const auto zero = hn::Zero(d);
  // The bound leaves 2^n normal; there e^x - 1 is -1 already.
  const auto bound = hn::Set(d, T{-64});
  const auto clamped = hn::IfThenElse(hn::Gt(x, zero), zero, hn::Max(x, bound));
  Vector<D> n, e;
  ReduceExp(d, clamped, &n, &e);
  const auto scale = PowerOfTwo(d, n);
  const auto below = hn::MulAdd(scale, e, hn::Sub(scale, one));
  // x itself for x > 0 and for NaN, and for the zeros, whose sign it keeps.
  return hn::IfThenElse(hn::Lt(x, zero), below, x);
}

template <class D>
HWY_INLINE Vector<D> EluPlusOne(D d, Vector<D> x) {
  const auto zero = hn::Zero(d);
  const auto below = Exp(d, hn::IfThenElse(hn::Gt(x, zero), zero, x));
  return hn::IfThenElse(hn::Gt(x, zero), hn::Add(x, hn::Set(d, hn::TFromD<D>{1})), below);
}

// The fixed tree over 8 lanes: ((l0+l4)+(l2+l6)) + ((l1+l5)+(l3+l7)).
HWY_INLINE float SumTree(hn::Vec<hn::FixedTag<float, 8>> lanes) {
  const hn::FixedTag<float, 4> d4;
  const auto sum4 = hn::Add(hn::LowerHalf(d4, lanes), hn::UpperHalf(d4, lanes));
  const auto sum2 = hn::Add(sum4, hn::Shuffle1032(sum4));
  return hn::GetLane(hn::Add(sum2, hn::Shuffle2301(sum2)));
}

// SumTree of eight vectors: lane i of the result has the bits of SumTree(v[i]).
HWY_INLINE hn::Vec<hn::FixedTag<float, 8>> SumTrees(const hn::Vec<hn::FixedTag<float, 8>> (&v)[8]) {
  const hn::FixedTag<float, 8> d;
  const hn::FixedTag<double, 4> pairs;
  hn::Vec<decltype(d)> sum4[4];  // of v[i] in the lower half and of v[i + 4] in the upper one
  for (size_t i = 0; i < 4; ++i) {
    sum4[i] =
        hn::Add(hn::ConcatLowerLower(d, v[i + 4], v[i]), hn::ConcatUpperUpper(d, v[i + 4], v[i]));
  }
  const auto low =
      hn::Add(hn::InterleaveLower(d, sum4[0], sum4[1]), hn::InterleaveUpper(d, sum4[0], sum4[1]));
  const auto high =
      hn::Add(hn::InterleaveLower(d, sum4[2], sum4[3]), hn::InterleaveUpper(d, sum4[2], sum4[3]));
  const auto even = hn::InterleaveLower(pairs, hn::BitCast(pairs, low), hn::BitCast(pairs, high));
  const auto odd = hn::InterleaveUpper(pairs, hn::BitCast(pairs, low), hn::BitCast(pairs, high));
  return hn::Add(hn::BitCast(d, even), hn::BitCast(d, odd));
}

HWY_INLINE double SumTree(hn::Vec<hn::FixedTag<double, 4>> low,
                          hn::Vec<hn::FixedTag<double, 4>> high) {
  const hn::FixedTag<double, 2> d2;
  const auto sum4 = hn::Add(low, high);
  const auto sum2 = hn::Add(hn::LowerHalf(d2, sum4), hn::UpperHalf(d2, sum4));
  return hn::GetLane(hn::Add(sum2, hn::Shuffle01(sum2)));
}

}  // namespace lethe::simd

#endif  // LETHE_KERNELS_MATH_VECTOR_MATH_H_
