// SvddBatchTest: problems loaded into an SvddBatch and what the CPU's solvers say of them.
// Threads: as GoogleTest.
#ifndef LETHE_TESTS_MEMORY_SVDD_BATCH_TESTING_H_
#define LETHE_TESTS_MEMORY_SVDD_BATCH_TESTING_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "memory/svdd/canon.h"
#include "memory/svdd/svdd_batch.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/device_test.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {

inline constexpr int64_t kDim = 5;

struct Problem {
  std::string name;
  Params params;
  std::vector<double> keys;

  int64_t size() const { return static_cast<int64_t>(keys.size()) / params.key_dim; }
};

inline Problem MakeProblem(KeyKind kind, int64_t num_keys, double nu, double sigma, double ridge,
                           std::mt19937_64* random) {
  const double box_mass = std::max(1.0, nu * static_cast<double>(num_keys));
  std::string name = std::string(KindName(kind)) + " n " + std::to_string(num_keys) + " nu " +
                     std::to_string(nu) + " sigma " + std::to_string(sigma) + " ridge " +
                     std::to_string(ridge);
  return {std::move(name), MakeParamsOrDie(sigma, box_mass, ridge, kDim),
          MakeKeys(kind, num_keys, kDim, random)};
}

// Partitions may differ where no margin is proved.
inline bool IsProved(const Params& params, const Solution& solution) {
  return !solution.ambiguous &&
         solution.smallest_margin >= 2.0 * MarginThreshold(params, solution.num_keys);
}

class SvddBatchTest : public testing::DeviceTest {
 protected:
  std::unique_ptr<SvddBatch> MakeBatch(int64_t num_slots, int64_t max_keys, int64_t dim = kDim,
                                       const SvddTuning& tuning = {}) {
    auto batch = SvddBatch::Create(queue(), num_slots, max_keys, dim, tuning);
    EXPECT_TRUE(batch.ok()) << batch.status();
    return *std::move(batch);
  }

  // Into the slots from `first` on, in an order that is not theirs.
  void Load(SvddBatch* batch, const std::vector<Problem>& problems) {
    std::vector<double> keys;
    std::vector<SvddLoad> loads;
    for (size_t k = problems.size(); k-- > 0;) {
      loads.push_back({static_cast<int32_t>(k), problems[k].params, problems[k].size()});
      keys.insert(keys.end(), problems[k].keys.begin(), problems[k].keys.end());
    }
    const DeviceArray<double> device_keys = OnDevice(keys);
    ASSERT_OK(batch->Load(loads, device_keys.data()));
    ASSERT_OK(queue()->Finish());
  }

  // One key to each of the slots; it becomes the problem's last one.
  void Add(SvddBatch* batch, const std::vector<int32_t>& slots, std::vector<Problem>* problems,
           const std::vector<double>& keys) {
    const DeviceArray<double> device_keys = OnDevice(keys);
    ASSERT_OK(batch->Add(slots, device_keys.data()));
    ASSERT_OK(queue()->Finish());
    for (size_t k = 0; k < slots.size(); ++k) {
      std::vector<double>& list = (*problems)[static_cast<size_t>(slots[k])].keys;
      const auto from = keys.begin() + static_cast<int64_t>(k) * kDim;
      list.insert(list.end(), from, from + kDim);
    }
  }

  std::vector<SvddProposal> Read(SvddBatch* batch, size_t count) {
    std::vector<int32_t> slots(count);
    std::iota(slots.begin(), slots.end(), 0);
    auto proposals = batch->Read(slots);
    EXPECT_TRUE(proposals.ok()) << proposals.status();
    return *std::move(proposals);
  }

  // `solution`: of the CPU, however it got there.
  void ExpectSame(const Problem& problem, const SvddProposal& proposal, const Solution& solution,
                  Counters* counters) {
    SCOPED_TRACE(problem.name);
    EXPECT_EQ(proposal.status, SvddStatus::kSettled) << proposal.num_steps << " steps";
    ASSERT_OK_AND_ASSIGN(const Solution canonical,
                         Canonical(problem.params, problem.keys, proposal, counters));
    EXPECT_TRUE(SameBits(canonical, solution));
    if (IsProved(problem.params, solution)) {
      EXPECT_EQ(proposal.classes, solution.classes);
    }
    if (static_cast<double>(problem.size()) > problem.params.box_mass && !solution.ambiguous) {
      EXPECT_NEAR(proposal.rho(), solution.rho, 1e-6);
    }
  }

  void ExpectCanonical(SvddBatch* batch, const std::vector<Problem>& problems, Counters* counters) {
    const std::vector<SvddProposal> proposals = Read(batch, problems.size());
    for (size_t k = 0; k < problems.size(); ++k) {
      ASSERT_OK_AND_ASSIGN(const Solution solution,
                           SolveCanonical(problems[k].params, problems[k].keys));
      ExpectSame(problems[k], proposals[k], solution, counters);
    }
  }
};

}  // namespace lethe::svdd

#endif  // LETHE_TESTS_MEMORY_SVDD_BATCH_TESTING_H_
