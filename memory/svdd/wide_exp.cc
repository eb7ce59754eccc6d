#include "memory/svdd/wide_exp.h"

#include "memory/svdd/wide_lanes.h"

namespace lethe::svdd {

DoubleDouble WideExp(const DoubleDouble& x) {
  const hn::FixedTag<double, 1> d;
  const auto value = ExpLanes(d, SetLanes(d, x), InverseFactorials());
  return {hn::GetLane(value.hi), hn::GetLane(value.lo)};
}

}  // namespace lethe::svdd
