// LoadBlock, AddToBlock, RemoveFromBlock, FreeBlock: the operations on one problem, by a team of threads.
//
// Equation:  the list of keys changes, then n <= M: a = 1 for all; else svdd_block_solve.h from the a that is
//            left (a new key's is 0, what leaving keys held is missing, an unsettled problem starts from 0).
// Shapes:    svdd_block_state.h. keys: [count][dim], in rank order.
// Units:     a-units.
// Requires:  room for the keys; ranks ascending, distinct and below n; all members of the team call it.
// Rejects:   none; head->status says what came of it.
// Effects:   updates the problem. What a removed key left in keys, gram, a, classes and row_of_rank is
//            overwritten with zeros, and so is everything that an operation wrote to the workspace. The last
//            row of the list moves into the place of a removed one.
// Numerics:  Gram entries as Gram, the policy, evaluates them: Fill(problem, n) all of the first n rows,
//            Row(problem, row) row and column `row` of them. They end synchronised.
// Threads:   one team.
#ifndef LETHE_MEMORY_SVDD_SVDD_BLOCK_EDIT_H_
#define LETHE_MEMORY_SVDD_SVDD_BLOCK_EDIT_H_

#include <cstdint>

#include "memory/svdd/svdd_batch_device.h"
#include "memory/svdd/svdd_block_solve.h"
#include "memory/svdd/svdd_block_state.h"
#include "memory/svdd/svdd_team.h"

namespace lethe::svdd {

template <typename Team>
LETHE_TEAM_CODE void ZeroDoubles(Team* team, double* data, int64_t count) {
  for (int64_t i = team->rank(); i < count; i += team->size()) data[i] = 0.0;
}

template <typename Team>
LETHE_TEAM_CODE void WipeWorkspace(Team* team, const BlockWorkspace& work, int32_t n,
                                   int32_t large_factor) {
  ZeroDoubles(team, work.small_factor, PackedSize(kSmallFactor));
  ZeroDoubles(team, work.small_inverse, kSmallFactor);
  ZeroDoubles(team, work.error_part, n);
  if (large_factor > 0) {
    ZeroDoubles(team, work.large_factor, PackedSize(large_factor));
    ZeroDoubles(team, work.large_inverse, large_factor);
  }
  for (int i = team->rank(); i < n; i += team->size()) {
    work.gradient[i] = work.a[i] = work.ones[i] = work.target[i] = 0.0;
    work.margin[i] = work.list[i] = 0;
    work.classes[i] = 0;
  }
  team->Sync();
}

// Solves for the present keys from workspace.a, of which before the operation there were `rows_before`.
template <typename Team>
LETHE_TEAM_CODE void Settle(Team* team, const BlockProblem& problem, const BlockWorkspace& work,
                            int32_t rows_before) {
  SvddHead* head = problem.head;
  const int32_t n = head->num_keys;
  bool is_settled = true;
  double lambda = 0.0;
  int32_t num_exchanges = 0;
  int32_t num_steps = 0;
  int32_t large_factor = 0;
  team->Sync();
  if (static_cast<double>(n) <= head->box_mass) {
    for (int i = team->rank(); i < n; i += team->size()) {
      work.a[i] = 1.0;
      work.classes[i] = kBlockError;
    }
  } else {
    BlockSolver<Team> solver(team, problem, work);
    is_settled = solver.Run();
    lambda = solver.lambda();
    num_exchanges = solver.num_exchanges();
    num_steps = solver.num_steps();
    large_factor = solver.large_factor();
  }
  team->Sync();
  const int32_t rows = n > rows_before ? n : rows_before;
  for (int i = team->rank(); i < rows; i += team->size()) {
    const bool is_there = is_settled && i < n;
    problem.a[i] = is_there ? work.a[i] : 0.0;
    problem.classes[i] = is_there ? work.classes[i] : kBlockReserve;
  }
  if (team->rank() == 0) {
    head->status = is_settled ? SvddStatus::kSettled : SvddStatus::kUnsettled;
    head->lambda = is_settled ? lambda : 0.0;
    head->num_exchanges = num_exchanges;
    head->num_steps = num_steps;
  }
  team->Sync();
  WipeWorkspace(team, work, rows, large_factor);
}

// Nothing is left of what was there.
template <typename Team>
LETHE_TEAM_CODE void FreeBlock(Team* team, const BlockProblem& problem) {
  const int32_t n = problem.head->num_keys;
  for (int32_t row = 0; row < n; ++row) ZeroDoubles(team, problem.Row(row), n);
  ZeroDoubles(team, problem.keys, static_cast<int64_t>(n) * problem.dim);
  ZeroDoubles(team, problem.a, n);
  for (int i = team->rank(); i < n; i += team->size()) {
    problem.classes[i] = 0;
    problem.row_of_rank[i] = 0;
  }
  team->Sync();
  if (team->rank() == 0) *problem.head = SvddHead{};
  team->Sync();
}

template <typename Team, typename Gram>
LETHE_TEAM_CODE void LoadBlock(Team* team, Gram* gram, const BlockProblem& problem,
                               const BlockWorkspace& work, const SvddHead& head,
                               const double* keys) {
  FreeBlock(team, problem);
  const int32_t n = head.num_keys;
  if (team->rank() == 0) *problem.head = head;
  for (int64_t i = team->rank(); i < static_cast<int64_t>(n) * problem.dim; i += team->size()) {
    problem.keys[i] = keys[i];
  }
  for (int i = team->rank(); i < n; i += team->size()) {
    problem.row_of_rank[i] = i;
    work.a[i] = 0.0;
  }
  team->Sync();
  gram->Fill(problem, n);
}

template <typename Team, typename Gram>
LETHE_TEAM_CODE void AddToBlock(Team* team, Gram* gram, const BlockProblem& problem,
                                const BlockWorkspace& work, const double* key) {
  const int32_t row = problem.head->num_keys;
  team->Sync();
  if (team->rank() == 0) {
    problem.head->num_keys = row + 1;
    problem.row_of_rank[row] = row;
  }
  for (int c = team->rank(); c < problem.dim; c += team->size()) {
    problem.keys[static_cast<int64_t>(row) * problem.dim + c] = key[c];
  }
  for (int i = team->rank(); i <= row; i += team->size()) work.a[i] = i < row ? problem.a[i] : 0.0;
  team->Sync();
  gram->Row(problem, row);
}

// Takes the row of one rank out of a list of n: the last row comes into its place.
template <typename Team>
LETHE_TEAM_CODE void TakeOutRank(Team* team, const BlockProblem& problem, double* a, int32_t rank,
                                 int32_t n) {
  const int32_t row = problem.row_of_rank[rank];
  const int32_t last = n - 1;
  const int64_t dim = problem.dim;
  for (int32_t first = 0; first < n; first += team->size()) {
    const int32_t r = first + team->rank();
    int32_t next = 0;
    if (r < last) next = problem.row_of_rank[r < rank ? r : r + 1];
    team->Sync();
    if (r < n) problem.row_of_rank[r] = next == last && r < last ? row : next;
  }
  team->Sync();
  double* last_row = problem.Row(last);
  if (row != last) {
    double* to = problem.Row(row);
    for (int j = team->rank(); j < last; j += team->size()) {
      const double value = j == row ? last_row[last] : last_row[j];
      to[j] = value;
      problem.Row(j)[row] = value;
    }
    for (int64_t c = team->rank(); c < dim; c += team->size()) {
      problem.keys[row * dim + c] = problem.keys[last * dim + c];
    }
    if (team->rank() == 0) a[row] = a[last];
  }
  team->Sync();
  for (int j = team->rank(); j < n; j += team->size()) {
    last_row[j] = 0.0;
    problem.Row(j)[last] = 0.0;
  }
  ZeroDoubles(team, problem.keys + last * dim, dim);
  if (team->rank() == 0) a[last] = 0.0;
  team->Sync();
}

template <typename Team>
LETHE_TEAM_CODE void RemoveFromBlock(Team* team, const BlockProblem& problem,
                                     const BlockWorkspace& work, const int32_t* ranks,
                                     int32_t count) {
  const int32_t before = problem.head->num_keys;
  for (int i = team->rank(); i < before; i += team->size()) work.a[i] = problem.a[i];
  team->Sync();
  for (int32_t t = count - 1; t >= 0; --t) {
    TakeOutRank(team, problem, work.a, ranks[t], before - (count - 1 - t));
  }
  if (team->rank() == 0) problem.head->num_keys = before - count;
  team->Sync();
}

// The proposal in rank order.
template <typename Team>
LETHE_TEAM_CODE void ReadBlock(Team* team, const BlockProblem& problem, SvddHead* head, double* a,
                               uint8_t* classes) {
  if (team->rank() == 0) *head = *problem.head;
  for (int r = team->rank(); r < problem.head->num_keys; r += team->size()) {
    const int32_t row = problem.row_of_rank[r];
    a[r] = problem.a[row];
    classes[r] = problem.classes[row];
  }
}

// One job of a batch.
template <typename Team, typename Gram>
LETHE_TEAM_CODE void RunJob(Team* team, Gram* gram, const SvddPool& pool,
                            const BlockWorkspace& work, SvddOperation operation, const SvddJob& job,
                            int64_t index, const SvddArguments& arguments) {
  const BlockProblem problem = pool.Problem(job.slot);
  const int32_t before = problem.head->num_keys;
  team->Sync();
  switch (operation) {
    case SvddOperation::kLoad:
      LoadBlock(team, gram, problem, work, arguments.heads[index],
                arguments.keys + job.first * pool.dim);
      break;
    case SvddOperation::kAdd:
      AddToBlock(team, gram, problem, work, arguments.keys + job.first * pool.dim);
      break;
    case SvddOperation::kRemove:
      RemoveFromBlock(team, problem, work, arguments.ranks + job.first, job.count);
      break;
    case SvddOperation::kFree:
      FreeBlock(team, problem);
      return;
    case SvddOperation::kRead:
      ReadBlock(team, problem, arguments.read_heads + index,
                arguments.read_a + index * pool.max_keys,
                arguments.read_classes + index * pool.max_keys);
      return;
  }
  Settle(team, problem, work, before);
}

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SVDD_BLOCK_EDIT_H_
