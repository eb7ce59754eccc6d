// SvddHead, BlockProblem, BlockWorkspace: one problem of an SvddBatch as a team of threads sees it.
//
// Equation:  none.
// Shapes:    n = head->num_keys rows, in no order: the key of rank r is row row_of_rank[r]. keys
//            [max_keys][dim], gram [max_keys][stride] with stride >= max_keys, a, classes, row_of_rank
//            [max_keys]. Beyond n everything is 0.
// Units:     a-units.
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   none.
#ifndef LETHE_MEMORY_SVDD_SVDD_BLOCK_STATE_H_
#define LETHE_MEMORY_SVDD_SVDD_BLOCK_STATE_H_

#include <cstddef>
#include <cstdint>

#include "memory/svdd/svdd_team.h"

namespace lethe::svdd {

// Values of Partition, which a .cu file need not know.
inline constexpr uint8_t kBlockReserve = 0;
inline constexpr uint8_t kBlockMargin = 1;
inline constexpr uint8_t kBlockError = 2;

enum class SvddStatus : int32_t {
  kFree = 0,      // no problem there
  kSettled = 1,   // classes are a proposal for the optimum
  kUnsettled = 2  // too many steps, a pivot too small or a number that is none: solve it elsewhere
};

struct SvddHead {
  double box_mass = 0.0;  // M
  double sigma = 0.0;
  double ridge = 0.0;
  double lambda = 0.0;
  int32_t num_keys = 0;
  SvddStatus status = SvddStatus::kFree;
  int32_t num_exchanges = 0;  // of the last operation
  int32_t num_steps = 0;
};

// Where the time goes, not what comes out: stage 2 of svdd_block_solve.h may take this many exchanges a key.
struct SvddTuning {
  int32_t exchanges_per_key = 4;
};

struct BlockProblem {
  SvddHead* head;
  double* keys;
  double* gram;
  double* a;
  uint8_t* classes;
  int32_t* row_of_rank;
  int64_t stride;
  int32_t dim;
  int32_t max_keys;
  int32_t exchanges_per_key;

  LETHE_TEAM_CODE double* Row(int32_t row) const { return gram + row * stride; }
};

// A factor of this size is in shared memory.
inline constexpr int kSmallFactor = 128;

LETHE_TEAM_CONSTANT int64_t PackedSize(int64_t n) { return n * (n + 1) / 2; }

// Of one team. On a GPU the first ones are in shared memory where they fit.
struct BlockWorkspace {
  double* gradient;  // [max_keys]
  double* a;         // [max_keys]
  double* ones;      // [max_keys], by position in the factor
  double* target;    // [max_keys], by position
  int32_t* margin;   // [max_keys], row at a position, -1 where it left
  int32_t* list;     // [max_keys]
  uint8_t* classes;  // [max_keys]

  double* small_factor;   // [PackedSize(kSmallFactor)]
  double* small_inverse;  // [kSmallFactor], of the factor's diagonal

  // In device memory.
  double* error_part;     // [max_keys]
  double* large_factor;   // [PackedSize(max_keys)], or null where max_keys <= kSmallFactor
  double* large_inverse;  // [max_keys]
};

// Bytes of the first group per key, and of the second one; all parts are aligned to 8.
constexpr size_t kBlockBytesPerKey = 4 * sizeof(double) + 2 * sizeof(int32_t) + 1;
LETHE_TEAM_CONSTANT size_t BlockVectorBytes(int64_t max_keys) {
  return (static_cast<size_t>(max_keys) * kBlockBytesPerKey + 15) / 8 * 8;
}
constexpr size_t kSmallFactorDoubles = PackedSize(kSmallFactor) + kSmallFactor;
LETHE_TEAM_CONSTANT size_t LargeFactorDoubles(int64_t max_keys) {
  return static_cast<size_t>(max_keys > kSmallFactor ? PackedSize(max_keys) + max_keys : 0);
}

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SVDD_BLOCK_STATE_H_
