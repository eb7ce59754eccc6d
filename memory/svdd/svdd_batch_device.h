// SvddPool, SvddWork, SvddJob, RunSvddHost, RunSvddCuda: the two forms of SvddBatch; internal to it.
//
// Equation:  svdd_block_edit.h for every job.
// Shapes:    a pool's arrays are [num_slots] of svdd_block_state.h's; a work's [num_teams].
// Units:     none.
// Requires:  what SvddBatch checks; everything in the queue's device's memory.
// Rejects:   INTERNAL when a launch fails.
// Effects:   as SvddBatch.
// Numerics:  as SvddBatch. Which team takes a job decides nothing.
// Threads:   as Queue.
#ifndef LETHE_MEMORY_SVDD_SVDD_BATCH_DEVICE_H_
#define LETHE_MEMORY_SVDD_SVDD_BATCH_DEVICE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/queue.h"
#include "memory/svdd/svdd_block_state.h"

namespace lethe::svdd {

enum class SvddOperation { kLoad, kAdd, kRemove, kFree, kRead };

struct SvddJob {
  int32_t slot = 0;
  int32_t count = 0;  // kRemove: of ranks
  int64_t first = 0;  // kLoad, kAdd: the first key; kRemove: the first of the ranks
};

struct SvddPool {
  SvddHead* heads;
  double* keys;
  double* gram;
  double* a;
  uint8_t* classes;
  int32_t* row_of_rank;
  int64_t stride;
  int32_t dim;
  int32_t max_keys;
  int32_t exchanges_per_key;

  LETHE_TEAM_CODE BlockProblem Problem(int64_t slot) const {
    return {heads + slot,
            keys + slot * max_keys * dim,
            gram + slot * max_keys * stride,
            a + slot * max_keys,
            classes + slot * max_keys,
            row_of_rank + slot * max_keys,
            stride,
            dim,
            max_keys,
            exchanges_per_key};
  }
};

struct SvddWork {
  double* doubles = nullptr;     // [num_teams][WorkDoubles]
  std::byte* vectors = nullptr;  // [num_teams][BlockVectorBytes]; null: in shared memory
  int32_t* next_job = nullptr;
  int32_t num_teams = 0;
};

// error_part and the large factor with its inverse.
LETHE_TEAM_CONSTANT int64_t WorkDoubles(int64_t max_keys) {
  return max_keys + static_cast<int64_t>(LargeFactorDoubles(max_keys));
}

// A team's workspace; `small`: kSmallFactorDoubles, `vectors`: BlockVectorBytes.
LETHE_TEAM_CODE BlockWorkspace PlaceWorkspace(int64_t max_keys, double* doubles, double* small,
                                              std::byte* vectors) {
  BlockWorkspace work;
  work.gradient = reinterpret_cast<double*>(vectors);
  work.a = work.gradient + max_keys;
  work.ones = work.a + max_keys;
  work.target = work.ones + max_keys;
  work.margin = reinterpret_cast<int32_t*>(work.target + max_keys);
  work.list = work.margin + max_keys;
  work.classes = reinterpret_cast<uint8_t*>(work.list + max_keys);
  work.small_factor = small;
  work.small_inverse = small + PackedSize(kSmallFactor);
  work.error_part = doubles;
  work.large_factor = doubles + max_keys;
  work.large_inverse = work.large_factor + PackedSize(max_keys);
  return work;
}

// What only some operations read or write.
struct SvddArguments {
  const SvddHead* heads = nullptr;  // kLoad: [num_jobs]
  const double* keys = nullptr;     // kLoad, kAdd
  const int32_t* ranks = nullptr;   // kRemove
  SvddHead* read_heads = nullptr;   // kRead: [num_jobs]
  double* read_a = nullptr;         // [num_jobs][max_keys]
  uint8_t* read_classes = nullptr;
};

// How many teams work at a time, and whether their vectors fit their shared memory.
struct SvddTeams {
  int32_t num_teams = 1;
  bool has_shared_vectors = false;
};
absl::Status SvddTeamsCuda(Queue* queue, int64_t max_keys, SvddTeams* teams);

void RunSvddHost(const SvddPool& pool, const SvddWork& work, SvddOperation operation,
                 const SvddJob* jobs, int32_t num_jobs, const SvddArguments& arguments);
absl::Status RunSvddCuda(Queue* queue, const SvddPool& pool, const SvddWork& work,
                         SvddOperation operation, const SvddJob* jobs, int32_t num_jobs,
                         const SvddArguments& arguments);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SVDD_BATCH_DEVICE_H_
