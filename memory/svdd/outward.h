// Up, Down, SumUp, …: rounding that never falls below a bound.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  RootUp: x >= 0. No NaN.
// Rejects:   none.
// Effects:   none.
// Numerics:  each result is at least the exact value (Down: at most), by one step to the next double
//            after rounding to nearest. Zero stays zero where it is exact: SumUp of zeros, RootUp
//            and products of zero.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_OUTWARD_H_
#define LETHE_MEMORY_SVDD_OUTWARD_H_

#include <algorithm>
#include <cmath>
#include <limits>

#include "memory/svdd/double_double.h"

namespace lethe::svdd {

inline double NextAbove(double x) {
  return std::nextafter(x, std::numeric_limits<double>::infinity());
}
inline double NextBelow(double x) {
  return std::nextafter(x, -std::numeric_limits<double>::infinity());
}

// Whatever the low word.
inline double Up(const DoubleDouble& x) { return NextAbove(x.hi + std::max(x.lo, 0.0)); }
inline double Down(const DoubleDouble& x) { return NextBelow(x.hi + std::min(x.lo, 0.0)); }

inline double SumUp(double x, double y) {
  if (x == 0.0) return y;
  return y == 0.0 ? x : NextAbove(x + y);
}
inline double ProductUp(double x, double y) {
  return x == 0.0 || y == 0.0 ? 0.0 : NextAbove(x * y);
}
inline double QuotientUp(double x, double y) { return x == 0.0 ? 0.0 : NextAbove(x / y); }
inline double RootUp(double x) { return x == 0.0 ? 0.0 : NextAbove(std::sqrt(x)); }

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_OUTWARD_H_
