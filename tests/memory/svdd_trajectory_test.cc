// Goal: the incremental solver stays exact over many operations and at sizes where its shortcuts are
// taken: keys that fall inside, reserve keys that leave, holes, batches.
// Method: long random trajectories against solves from scratch; two worlds, one of which never saw the
// removed key.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "memory/svdd/incremental.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

void ExpectRetrained(const Params& params, IncrementalSolver* solver) {
  ASSERT_OK_AND_ASSIGN(const Solution retrained, SolveCanonical(params, solver->keys()));
  ASSERT_TRUE(SameBits(retrained, solver->solution())) << "n " << solver->num_keys();
}

// One of: a key, a batch, a removal, a removal of several; n stays near `size`.
void Operate(KeyKind kind, int64_t dim, int64_t size, std::mt19937_64* random,
             IncrementalSolver* solver) {
  const int64_t n = solver->num_keys();
  const uint64_t what = (*random)() % 16;
  if (n < 2 || what + (n > size ? 6 : 0) < 9) {
    const auto batch = static_cast<int64_t>((*random)() % static_cast<uint64_t>(size / 6));
    const int64_t count = what == 0 ? 1 + batch : 1;
    ASSERT_OK(solver->AddSeveral(MakeKeys(kind, count, dim, random)));
  } else {
    const int64_t count = what == 15 ? std::min<int64_t>(n, 3) : 1;
    ASSERT_OK(solver->RemoveSeveral(RandomRanks(count, n, random)));
  }
}

TEST(SvddTrajectoryTest, AtSizesWhereMostKeysAreReserve) {
  std::mt19937_64 random(1);
  int64_t fallbacks = 0;
  for (const KeyKind kind : kAllKinds) {
    for (const double box_mass : {20.0, 33.7}) {
      SCOPED_TRACE(KindName(kind) + std::string(" M ") + std::to_string(box_mass));
      const int64_t dim = 5;
      const Params params = MakeParamsOrDie(2.0, box_mass, 0x1.0p-11, dim);
      IncrementalSolver solver(params);
      ASSERT_OK(solver.AddSeveral(MakeKeys(kind, 250, dim, &random)));
      for (int operation = 0; operation < 300; ++operation) {
        Operate(kind, dim, 250, &random, &solver);
        if (HasFatalFailure()) return;
        if (operation % 10 == 0) ExpectRetrained(params, &solver);
        if (HasFatalFailure()) return;
      }
      fallbacks += solver.counters().fallbacks;
      EXPECT_EQ(solver.counters().uncertified_gaps, 0);
    }
  }
  std::printf("slow canonical path: %lld times\n", static_cast<long long>(fallbacks));
}

TEST(SvddTrajectoryTest, AHundredThousandOperations) {
  std::mt19937_64 random(2);
  const int64_t dim = 6;
  const Params params = MakeParamsOrDie(2.0, 9.6, 0x1.0p-11, dim);  // nu 0.4 of 24
  IncrementalSolver solver(params);
  for (int operation = 0; operation < 100000; ++operation) {
    Operate(KeyKind::kGaussian, dim, 24, &random, &solver);
    if (HasFatalFailure()) return;
    if (operation % 250 != 0) continue;
    ExpectRetrained(params, &solver);
    if (HasFatalFailure()) return;
  }
  std::printf("slow canonical path: %lld of %lld solves\n",
              static_cast<long long>(solver.counters().fallbacks),
              static_cast<long long>(solver.counters().solves));
  EXPECT_EQ(solver.counters().ambiguous, 0);
}

TEST(SvddTrajectoryTest, EightyOfSixtyFourAtThePapersSettings) {
  for (uint64_t trajectory = 0; trajectory < 80; ++trajectory) {
    std::mt19937_64 random(100 + trajectory);
    const Params params = MakeParamsOrDie(2.0, 9.6, 0x1.0p-11, 6);
    IncrementalSolver solver(params);
    ASSERT_OK(solver.AddSeveral(MakeKeys(KeyKind::kGaussian, 24, 6, &random)));
    for (int operation = 0; operation < 64; ++operation) {
      Operate(KeyKind::kGaussian, 6, 24, &random, &solver);
      if (HasFatalFailure()) return;
      ExpectRetrained(params, &solver);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(SvddTrajectoryTest, NothingHeldRemembersARemovedKey) {
  std::mt19937_64 random(4);
  for (const KeyKind kind : {KeyKind::kGaussian, KeyKind::kClusters, KeyKind::kGrid}) {
    const int64_t dim = 4;
    const Params params = MakeParamsOrDie(1.5, 12.0, 0x1.0p-11, dim);
    const std::vector<double> keys = MakeKeys(kind, 90, dim, &random);
    IncrementalSolver never(params);
    ASSERT_OK(never.AddSeveral(keys));
    IncrementalSolver once(params);
    ASSERT_OK(once.AddSeveral(keys));
    int in_support = 0;
    for (int trial = 0; trial < 40; ++trial) {
      const std::vector<double> key = MakeKeys(KeyKind::kGaussian, 1, dim, &random);
      ASSERT_OK(once.Add(key));
      in_support += once.solution().classes.back() == Partition::kReserve ? 0 : 1;
      ASSERT_OK(once.Remove(once.num_keys() - 1));
      ASSERT_TRUE(SameBits(never.solution(), once.solution()));
      const absl::Span<const int64_t> sums = once.held_sums();
      ASSERT_GE(sums.size(), never.held_sums().size());
      // The rest are holes.
      ASSERT_EQ(sums.first(never.held_sums().size()), never.held_sums());
    }
    EXPECT_GT(in_support, 5);
  }
}

}  // namespace
}  // namespace lethe::svdd
