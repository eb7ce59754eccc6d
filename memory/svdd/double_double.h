// DoubleDouble: numbers of at least 106 bits as unevaluated sums of two doubles.
//
// Equation:  value = hi + lo, |lo| <= ulp(hi)/2.
// Shapes:    none.
// Units:     relative errors in u = 2^-53, bounds from Joldes, Muller and Popescu, "Tight and
//            rigorous error bounds for basic building blocks of double-word arithmetic" (2017), and
//            for the root Lefevre, Louvet, Muller, Picot and Rideau (2023).
// Requires:  no overflow, results above about 2^-960 (below it the low words are lost; callers
//            account for that as an absolute error); rounding to nearest, no contraction by the
//            compiler.
// Rejects:   none.
// Effects:   none.
// Numerics:  TwoSum, TwoProd, QuickTwoSum exact; dd + double 2u^2; dd + dd 3u^2 + 13u^3; dd *
//            double 2u^2; dd * dd 5u^2; dd / double 3u^2; dd / dd 15u^2 + 56u^3; Sqrt 25/8 u^2. All
//            below 2^-102.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_DOUBLE_DOUBLE_H_
#define LETHE_MEMORY_SVDD_DOUBLE_DOUBLE_H_

#include <cmath>

namespace lethe::svdd {

struct DoubleDouble {
  double hi = 0.0;
  double lo = 0.0;

  constexpr DoubleDouble() = default;
  constexpr DoubleDouble(double value) : hi(value) {}  // NOLINT: doubles are exact members
  constexpr DoubleDouble(double high, double low) : hi(high), lo(low) {}
  explicit operator double() const { return hi; }
};

inline DoubleDouble TwoSum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// Needs |a| >= |b| or a = 0.
inline DoubleDouble QuickTwoSum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

inline DoubleDouble TwoProd(double a, double b) {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}

inline DoubleDouble operator-(const DoubleDouble& x) { return {-x.hi, -x.lo}; }

inline DoubleDouble operator+(const DoubleDouble& x, double y) {
  const DoubleDouble sum = TwoSum(x.hi, y);
  return QuickTwoSum(sum.hi, x.lo + sum.lo);
}

inline DoubleDouble operator+(const DoubleDouble& x, const DoubleDouble& y) {
  const DoubleDouble high = TwoSum(x.hi, y.hi);
  const DoubleDouble low = TwoSum(x.lo, y.lo);
  const DoubleDouble joined = QuickTwoSum(high.hi, high.lo + low.hi);
  return QuickTwoSum(joined.hi, low.lo + joined.lo);
}

inline DoubleDouble operator-(const DoubleDouble& x, const DoubleDouble& y) { return x + (-y); }
inline DoubleDouble operator-(const DoubleDouble& x, double y) { return x + (-y); }
inline DoubleDouble& operator+=(DoubleDouble& x, const DoubleDouble& y) { return x = x + y; }
inline DoubleDouble& operator+=(DoubleDouble& x, double y) { return x = x + y; }

inline DoubleDouble operator*(const DoubleDouble& x, double y) {
  const DoubleDouble product = TwoProd(x.hi, y);
  return QuickTwoSum(product.hi, std::fma(x.lo, y, product.lo));
}

inline DoubleDouble operator*(const DoubleDouble& x, const DoubleDouble& y) {
  const DoubleDouble product = TwoProd(x.hi, y.hi);
  const double low = std::fma(x.lo, y.hi, x.hi * y.lo);
  return QuickTwoSum(product.hi, product.lo + low);
}

inline DoubleDouble operator/(const DoubleDouble& x, double y) {
  const double quotient = x.hi / y;
  const DoubleDouble product = TwoProd(quotient, y);
  const double rest = (x.hi - product.hi) - product.lo + x.lo;
  return QuickTwoSum(quotient, rest / y);
}

inline DoubleDouble operator/(const DoubleDouble& x, const DoubleDouble& y) {
  const double quotient = x.hi / y.hi;
  const DoubleDouble product = y * quotient;
  const double rest = (x.hi - product.hi) + (x.lo - product.lo);
  return QuickTwoSum(quotient, rest / y.hi);
}

inline DoubleDouble Sqrt(const DoubleDouble& x) {
  if (x.hi == 0.0) return {};
  const double root = std::sqrt(x.hi);
  const double rest = std::fma(-root, root, x.hi) + x.lo;
  return QuickTwoSum(root, rest / (2.0 * root));
}

inline bool operator<(const DoubleDouble& x, const DoubleDouble& y) {
  return x.hi < y.hi || (x.hi == y.hi && x.lo < y.lo);
}
inline bool operator>(const DoubleDouble& x, const DoubleDouble& y) { return y < x; }
inline bool operator<=(const DoubleDouble& x, const DoubleDouble& y) { return !(y < x); }
inline bool operator>=(const DoubleDouble& x, const DoubleDouble& y) { return !(x < y); }
inline bool operator==(const DoubleDouble& x, const DoubleDouble& y) {
  return x.hi == y.hi && x.lo == y.lo;
}

inline DoubleDouble Abs(const DoubleDouble& x) { return x.hi < 0.0 ? -x : x; }

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_DOUBLE_DOUBLE_H_
