// HostTeam, Best, LETHE_TEAM_CODE: what the block-wide solver of svdd_block_solve.h asks of the threads that
// run it together, and the team of one that runs it on the host.
//
// Equation:  none.
// Shapes:    rank() below size(); thread = warp() * lanes() + lane().
// Units:     none.
// Requires:  every member of a team calls the collective functions (all but the sizes) in the same order.
// Rejects:   none.
// Effects:   Sync: what any member wrote is visible to all. Compact ends with a Sync, the reductions do not
//            order memory.
// Numerics:  every member gets the same result, whatever the order of arrival. A NaN is never the least.
// Threads:   the members of one team.
#ifndef LETHE_MEMORY_SVDD_SVDD_TEAM_H_
#define LETHE_MEMORY_SVDD_SVDD_TEAM_H_

#include <cstdint>

// In a .cu file the code of a team is the device's; sizes are of both.
#ifdef __CUDACC__
#define LETHE_TEAM_CODE __device__ __forceinline__
#define LETHE_TEAM_CONSTANT __host__ __device__ constexpr
#define LETHE_TEAM_UNROLL _Pragma("unroll 8")
#else
#define LETHE_TEAM_CODE inline
#define LETHE_TEAM_CONSTANT constexpr
#define LETHE_TEAM_UNROLL
#endif

namespace lethe::svdd {

inline constexpr double kTeamInfinity = 1e308;  // no gradient, score or length comes near it

// The least value and the lowest index that has it; index -1: none.
struct Best {
  double value = kTeamInfinity;
  int32_t index = -1;
};

LETHE_TEAM_CODE Best Lesser(const Best& a, const Best& b) {
  const bool take_b =
      b.index >= 0 && b.value == b.value &&
      (a.index < 0 || b.value < a.value || (b.value == a.value && b.index < a.index));
  return take_b ? b : a;
}

struct BestAndMost {
  Best best;
  double most = -kTeamInfinity;
};

struct TwoSums {
  double first = 0.0;
  double second = 0.0;
};

class HostTeam {
 public:
  int rank() const { return 0; }
  int size() const { return 1; }
  int lane() const { return 0; }
  int lanes() const { return 1; }
  int warp() const { return 0; }
  int warps() const { return 1; }
  void Sync() {}
  Best Least(const Best& own) { return own; }
  BestAndMost LeastAndMost(const BestAndMost& own) { return own; }
  TwoSums Sum(const TwoSums& own) { return own; }
  // Writes value(i) for i in 0 … count - 1 where it is not negative, in order; returns how many. out may be
  // what value reads at i.
  template <typename Value>
  int Compact(int count, const Value& value, int32_t* out) {
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      const int32_t v = value(i);
      if (v >= 0) out[kept++] = v;
    }
    return kept;
  }
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SVDD_TEAM_H_
