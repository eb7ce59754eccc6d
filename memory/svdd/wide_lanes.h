// WideLanes, ExpLanes: double-double arithmetic on vector lanes, for the proof.
//
// Equation:  lane by lane as double_double.h; ExpLanes(x) = e^x.
// Shapes:    WideLanes<V>: one double-double per lane of V.
// Units:     relative errors in u = 2^-53, as in double_double.h.
// Requires:  as double_double.h. ExpLanes: x <= 0, no NaN.
// Rejects:   none.
// Effects:   none.
// Numerics:  every operation acts on a lane alone, so a result depends on neither its lane nor the
//            width. AddLanes 3u^2 + 13u^3, MultiplyLanes 5u^2. AddBelow, for |y| <= |x|/2: at most
//            5u^2 |x| (QuickTwoSum is exact; x.lo + y.lo rounds by 1.5u^2 |x|, its sum with the
//            high words' rest by 3u^2 |x|). ExpLanes: relative error <= 2^-100 where the result is
//            above 2^-900, absolute error below 2^-900 beneath, 0 for x <= -700. Why: r is x less k
//            ln 2 by three double-double sums of at most 3u^2 (0.35 + 2^-46) each, under 4u^2;
//            Horner's last step adds at most 5u^2 + 0.42 * 5u^2, the one before 0.35 times as much
//            and so on, of a result of at least 0.7: under 16u^2; the truncated series and the terms
//            in plain doubles are below u^2. 2^-100 is 64u^2.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_WIDE_LANES_H_
#define LETHE_MEMORY_SVDD_WIDE_LANES_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

#include "memory/svdd/double_double.h"

namespace lethe::svdd {

namespace hn = hwy::HWY_NAMESPACE;

template <class V>
struct WideLanes {
  V hi;
  V lo;
};

template <class V>
HWY_INLINE WideLanes<V> TwoSumLanes(V a, V b) {
  const V sum = hn::Add(a, b);
  const V b_part = hn::Sub(sum, a);
  return {sum, hn::Add(hn::Sub(a, hn::Sub(sum, b_part)), hn::Sub(b, b_part))};
}

// Needs |a| >= |b| or a = 0.
template <class V>
HWY_INLINE WideLanes<V> QuickTwoSumLanes(V a, V b) {
  const V sum = hn::Add(a, b);
  return {sum, hn::Sub(b, hn::Sub(sum, a))};
}

template <class V>
HWY_INLINE WideLanes<V> TwoProdLanes(V a, V b) {
  const V product = hn::Mul(a, b);
  return {product, hn::MulSub(a, b, product)};
}

template <class V>
HWY_INLINE WideLanes<V> AddLanes(const WideLanes<V>& x, const WideLanes<V>& y) {
  const WideLanes<V> high = TwoSumLanes(x.hi, y.hi);
  const WideLanes<V> low = TwoSumLanes(x.lo, y.lo);
  const WideLanes<V> joined = QuickTwoSumLanes(high.hi, hn::Add(high.lo, low.hi));
  return QuickTwoSumLanes(joined.hi, hn::Add(low.lo, joined.lo));
}

// x + y for |y| <= |x|/2.
template <class V>
HWY_INLINE WideLanes<V> AddBelow(const WideLanes<V>& x, const WideLanes<V>& y) {
  const WideLanes<V> high = QuickTwoSumLanes(x.hi, y.hi);
  return QuickTwoSumLanes(high.hi, hn::Add(high.lo, hn::Add(x.lo, y.lo)));
}

template <class V>
HWY_INLINE WideLanes<V> MultiplyLanes(const WideLanes<V>& x, const WideLanes<V>& y) {
  const WideLanes<V> product = TwoProdLanes(x.hi, y.hi);
  const V low = hn::MulAdd(x.lo, y.hi, hn::Mul(x.hi, y.lo));
  return QuickTwoSumLanes(product.hi, hn::Add(product.lo, low));
}

template <class D>
HWY_INLINE WideLanes<hn::Vec<D>> SetLanes(D d, const DoubleDouble& x) {
  return {hn::Set(d, x.hi), hn::Set(d, x.lo)};
}

// Taylor: with |r| <= 0.3466, 0.3466^27/27! < 2^-133. Terms from kExpFirstPlain on are below 2^-57
// of the sum, so that plain doubles suffice there.
inline constexpr size_t kExpTerms = 26;
inline constexpr size_t kExpFirstPlain = 14;

using ExpCoefficients = std::array<DoubleDouble, kExpTerms + 1>;

// 1/k!, to double-double accuracy.
inline const ExpCoefficients& InverseFactorials() {
  static const ExpCoefficients kInverse = [] {
    ExpCoefficients inverse;
    inverse[0] = 1.0;
    for (size_t k = 1; k <= kExpTerms; ++k) inverse[k] = inverse[k - 1] / static_cast<double>(k);
    return inverse;
  }();
  return kInverse;
}

template <class D>
HWY_INLINE WideLanes<hn::Vec<D>> ExpLanes(D d, const WideLanes<hn::Vec<D>>& x,
                                          const ExpCoefficients& inverse) {
  using V = hn::Vec<D>;
  // ln 2 as three doubles.
  constexpr double kLn2High = 0x1.62e42fefa39efp-1;
  constexpr double kLn2Middle = 0x1.abc9e3b39803fp-56;
  constexpr double kLn2Low = 0x1.7b57a079a1934p-111;
  constexpr double kZeroBelow = -700.0;  // e^-700 < 2^-1009: covered as an absolute error
  // Lanes that end as 0 stay within the range of k meanwhile.
  const auto kept = hn::Gt(x.hi, hn::Set(d, kZeroBelow));
  const WideLanes<V> from = {hn::IfThenElseZero(kept, x.hi), hn::IfThenElseZero(kept, x.lo)};
  const V k = hn::Round(hn::Mul(from.hi, hn::Set(d, 0x1.71547652b82fep0)));
  const V minus_k = hn::Neg(k);
  WideLanes<V> r = AddLanes(from, TwoProdLanes(minus_k, hn::Set(d, kLn2High)));
  r = AddLanes(r, TwoProdLanes(minus_k, hn::Set(d, kLn2Middle)));
  r = AddLanes(r, {hn::Mul(minus_k, hn::Set(d, kLn2Low)), hn::Zero(d)});
  V tail = hn::Set(d, inverse[kExpTerms].hi);
  for (size_t i = kExpTerms; i-- > kExpFirstPlain;) {
    tail = hn::MulAdd(tail, r.hi, hn::Set(d, inverse[i].hi));
  }
  WideLanes<V> sum = {tail, hn::Zero(d)};
  for (size_t i = kExpFirstPlain; i-- > 0;) {
    sum = AddBelow(SetLanes(d, inverse[i]), MultiplyLanes(sum, r));
  }
  // 2^k, -1010 <= k <= 0: the low bits of k + 1023 + 2^52 become the exponent.
  const hn::RebindToUnsigned<D> du;
  const V scale =
      hn::BitCast(d, hn::ShiftLeft<52>(hn::BitCast(du, hn::Add(k, hn::Set(d, 0x1.0p52 + 1023.0)))));
  return {hn::IfThenElseZero(kept, hn::Mul(sum.hi, scale)),
          hn::IfThenElseZero(kept, hn::Mul(sum.lo, scale))};
}

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_WIDE_LANES_H_
