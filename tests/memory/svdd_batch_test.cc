// Goal: on every device the partitions of SvddBatch are those of the CPU's solvers, and after Canonical so are the
// bits; what a removed key left is gone; what the device cannot solve says so.
// Method: all kinds of keys in one launch against SolveCanonical; sequences of loads, additions and removals against
// IncrementalSolver; margin sets on both sides of the small factor; thousands of problems at a time; keys that are
// no numbers; the bytes of the slots. The longer form takes more problems and operations.
#include "memory/svdd/svdd_batch.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "gtest/gtest.h"

#include "memory/svdd/incremental.h"
#include "tests/memory/svdd_batch_testing.h"

namespace lethe::svdd {
namespace {

bool IsLong() {
  const char* value = std::getenv("LETHE_TEST_LONG");
  return value != nullptr && std::string(value) == "1";
}

LETHE_ON_EVERY_DEVICE(SvddBatchTest);

TEST_P(SvddBatchTest, LoadsEndInTheCanonicalSolution) {
  std::mt19937_64 random(1);
  std::vector<Problem> problems;
  for (const KeyKind kind : kAllKinds) {
    for (const double nu : {0.02, 0.1, 0.25, 0.5}) {
      for (const int64_t n : {2, 7, 33, 90}) {
        for (const double ridge : {0x1.0p-11, 1e-8}) {
          if (ridge < 1e-4 && n != 33) continue;
          problems.push_back(MakeProblem(kind, n, nu, 1.5, ridge, &random));
        }
      }
    }
    // M no integer, above and just below n.
    problems.push_back(MakeProblem(kind, 12, 12.5 / 12.0, 1.5, 0x1.0p-11, &random));
    problems.push_back(MakeProblem(kind, 12, 11.5 / 12.0, 1.5, 0x1.0p-11, &random));
  }
  const auto batch = MakeBatch(static_cast<int64_t>(problems.size()), 90);
  Load(batch.get(), problems);
  Counters counters;
  ExpectCanonical(batch.get(), problems, &counters);
  // What is not accepted at once are the cases that the CPU's proposal does not settle either.
  EXPECT_GT(counters.accepted, counters.solves * 9 / 10);
}

TEST_P(SvddBatchTest, MarginSetsOutgrowTheSmallFactor) {
  std::mt19937_64 random(2);
  std::vector<Problem> problems;
  for (const KeyKind kind : {KeyKind::kGaussian, KeyKind::kUnitSphere, KeyKind::kClusters,
                             KeyKind::kDuplicates, KeyKind::kFewKeys}) {
    for (const double sigma : {0.4, 0.7}) {
      problems.push_back(MakeProblem(kind, 124, 0.1, sigma, 0x1.0p-11, &random));
      problems.push_back(MakeProblem(kind, 210, 0.1, sigma, 0x1.0p-11, &random));
    }
  }
  const auto batch = MakeBatch(static_cast<int64_t>(problems.size()), 230);
  Load(batch.get(), problems);
  Counters counters;
  ExpectCanonical(batch.get(), problems, &counters);
  size_t largest = 0;
  for (const SvddProposal& proposal : Read(batch.get(), problems.size())) {
    largest = std::max<size_t>(
        largest, static_cast<size_t>(std::count(proposal.classes.begin(), proposal.classes.end(),
                                                Partition::kMargin)));
  }
  EXPECT_GT(largest, size_t{kSmallFactor});
  // Across its size, up and down.
  std::vector<int32_t> slots(problems.size());
  std::iota(slots.begin(), slots.end(), 0);
  for (int round = 0; round < 12; ++round) {
    std::vector<double> keys;
    for (size_t k = 0; k < problems.size(); ++k) {
      const std::vector<double> key = MakeKeys(KeyKind::kGaussian, 1, kDim, &random);
      keys.insert(keys.end(), key.begin(), key.end());
    }
    Add(batch.get(), slots, &problems, keys);
  }
  ExpectCanonical(batch.get(), problems, &counters);
  std::vector<SvddRemoval> removals;
  for (const int32_t slot : slots) {
    Problem& problem = problems[static_cast<size_t>(slot)];
    const std::vector<int64_t> ranks = RandomRanks(25, problem.size(), &random);
    removals.push_back({slot, std::vector<int32_t>(ranks.begin(), ranks.end())});
    problem.keys = WithoutKeys(problem.keys, kDim, ranks);
  }
  ASSERT_OK(batch->Remove(removals));
  ExpectCanonical(batch.get(), problems, &counters);
  EXPECT_EQ(counters.fallbacks, 0);
}

class SvddSequencesTest : public SvddBatchTest {
 protected:
  void Follow(const SvddTuning& tuning, int rounds);
};

LETHE_ON_EVERY_DEVICE(SvddSequencesTest);

// Every problem's way is its own: some keys come, some go, often none.
void SvddSequencesTest::Follow(const SvddTuning& tuning, int rounds) {
  std::mt19937_64 random(3);
  std::vector<Problem> problems;
  std::vector<IncrementalSolver> solvers;
  for (const KeyKind kind : kAllKinds) {
    for (const double box_mass : {6.0, 7.3}) {
      problems.push_back(MakeProblem(kind, 9, 1.0, 1.5, 0x1.0p-11, &random));
      problems.back().params = MakeParamsOrDie(1.5, box_mass, 0x1.0p-11, kDim);
      solvers.emplace_back(problems.back().params);
      ASSERT_OK(solvers.back().AddSeveral(problems.back().keys));
    }
  }
  const auto batch = MakeBatch(static_cast<int64_t>(problems.size()), 48, kDim, tuning);
  Load(batch.get(), problems);
  Counters counters;
  for (int round = 0; round < rounds; ++round) {
    std::vector<int32_t> adding;
    std::vector<double> keys;
    std::vector<SvddRemoval> removals;
    for (size_t k = 0; k < problems.size(); ++k) {
      Problem& problem = problems[k];
      const uint64_t draw = random();
      if (problem.size() < 40 && (problem.size() < 3 || draw % 5 < 3)) {
        adding.push_back(static_cast<int32_t>(k));
        // One in four is a copy of a key that is there.
        std::vector<double> key = MakeKeys(kAllKinds[k / 2], 12, kDim, &random);
        key.erase(key.begin(), key.end() - kDim);
        if (draw % 4 == 0 && !problem.keys.empty()) {
          key.assign(problem.keys.begin(), problem.keys.begin() + kDim);
        }
        keys.insert(keys.end(), key.begin(), key.end());
        ASSERT_OK(solvers[k].Add(key));
      } else if (draw % 7 != 0) {
        const int64_t count = std::min<int64_t>(problem.size(), draw % 11 == 0 ? 9 : 1);
        const std::vector<int64_t> ranks = RandomRanks(count, problem.size(), &random);
        ASSERT_OK(solvers[k].RemoveSeveral(ranks));
        problem.keys = WithoutKeys(problem.keys, kDim, ranks);
        removals.push_back(
            {static_cast<int32_t>(k), std::vector<int32_t>(ranks.begin(), ranks.end())});
      }
    }
    Add(batch.get(), adding, &problems, keys);
    ASSERT_OK(batch->Remove(removals));
    const std::vector<SvddProposal> proposals = Read(batch.get(), problems.size());
    for (size_t k = 0; k < problems.size(); ++k) {
      ASSERT_EQ(batch->num_keys(static_cast<int32_t>(k)), problems[k].size());
      ExpectSame(problems[k], proposals[k], solvers[k].solution(), &counters);
    }
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(counters.accepted, counters.solves * 9 / 10);
}

TEST_P(SvddSequencesTest, FollowTheIncrementalSolver) { Follow({}, IsLong() ? 3000 : 300); }

// Then the active set does all the work: keys enter and leave S one by one and in blocks.
TEST_P(SvddSequencesTest, FollowItWithoutExchangesToo) {
  Follow({.exchanges_per_key = 0}, IsLong() ? 1000 : 100);
}

TEST_P(SvddBatchTest, LoadsWithoutExchangesEndInTheCanonicalSolution) {
  std::mt19937_64 random(7);
  std::vector<Problem> problems;
  for (const KeyKind kind : kAllKinds) {
    for (const double sigma : {0.5, 1.5}) {
      for (const double nu : {0.1, 0.4}) {
        problems.push_back(MakeProblem(kind, 170, nu, sigma, 0x1.0p-11, &random));
      }
    }
  }
  const auto batch =
      MakeBatch(static_cast<int64_t>(problems.size()), 170, kDim, {.exchanges_per_key = 0});
  Load(batch.get(), problems);
  Counters counters;
  ExpectCanonical(batch.get(), problems, &counters);
}

TEST_P(SvddBatchTest, ThousandsOfProblemsInALaunch) {
  std::mt19937_64 random(4);
  const size_t count = IsLong() ? 6000 : 2100;
  std::vector<Problem> problems;
  for (size_t k = 0; k < count; ++k) {
    const KeyKind kind = kAllKinds[k % std::size(kAllKinds)];
    problems.push_back(
        MakeProblem(kind, 12 + static_cast<int64_t>(random() % 9), 0.3, 1.2, 0x1.0p-11, &random));
  }
  const auto batch = MakeBatch(static_cast<int64_t>(count), 24);
  Load(batch.get(), problems);
  Counters counters;
  ExpectCanonical(batch.get(), problems, &counters);
  std::vector<SvddRemoval> removals;
  std::vector<int32_t> slots(count);
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random);
  std::vector<double> keys;
  for (const int32_t slot : slots) {
    Problem& problem = problems[static_cast<size_t>(slot)];
    const auto ranks = RandomRanks(1, problem.size(), &random);
    removals.push_back({slot, {static_cast<int32_t>(ranks[0])}});
    problem.keys = WithoutKeys(problem.keys, kDim, ranks);
    const std::vector<double> key = MakeKeys(KeyKind::kGrid, 1, kDim, &random);
    keys.insert(keys.end(), key.begin(), key.end());
  }
  ASSERT_OK(batch->Remove(removals));
  Add(batch.get(), slots, &problems, keys);
  ExpectCanonical(batch.get(), problems, &counters);
}

TEST_P(SvddBatchTest, NothingOfARemovedKeyIsLeft) {
  std::mt19937_64 random(5);
  const int64_t n = 40;
  const int64_t room = 50;
  const auto batch = MakeBatch(3, room);
  std::vector<Problem> problems;
  for (int k = 0; k < 3; ++k) {
    problems.push_back(MakeProblem(KeyKind::kGaussian, n, 0.2, 1.5, 0x1.0p-11, &random));
  }
  Load(batch.get(), problems);
  ASSERT_OK_AND_ASSIGN(const std::vector<double> before, batch->SlotNumbers(1));
  ASSERT_OK(batch->Remove({{1, {0, 3, 17, 38, 39}}}));
  ASSERT_OK_AND_ASSIGN(const std::vector<double> after, batch->SlotNumbers(1));
  // Components and Gram entries of what left (off the diagonal) were in the slot and are not.
  const std::vector<double> removed(problems[1].keys.begin(), problems[1].keys.begin() + kDim);
  for (const double component : removed) {
    EXPECT_NE(std::count(before.begin(), before.end(), component), 0);
    EXPECT_EQ(std::count(after.begin(), after.end(), component), 0);
  }
  const auto gram = static_cast<size_t>(room * kDim);
  for (size_t j = 1; j < 40; ++j) {
    const double entry = before[gram + j];
    EXPECT_EQ(std::count(after.begin(), after.end(), entry), 0) << j;
  }
  EXPECT_EQ(
      std::count_if(after.begin(), after.begin() + room * kDim, [](double x) { return x != 0.0; }),
      (n - 5) * kDim);
  EXPECT_EQ(std::count_if(after.begin() + room * kDim, after.begin() + room * (kDim + 52),
                          [](double x) { return x != 0.0; }),
            (n - 5) * (n - 5));
  ASSERT_OK(batch->Free({1, 0}));
  for (const int32_t slot : {0, 1}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<double> freed, batch->SlotNumbers(slot));
    EXPECT_EQ(std::count(freed.begin(), freed.end(), 0.0), std::ssize(freed));
  }
  const std::vector<SvddProposal> proposals = Read(batch.get(), 3);
  EXPECT_EQ(proposals[0].status, SvddStatus::kFree);
  Counters counters;
  ASSERT_OK_AND_ASSIGN(const Solution mate, SolveCanonical(problems[2].params, problems[2].keys));
  ExpectSame(problems[2], proposals[2], mate, &counters);
}

TEST_P(SvddBatchTest, WhatIsNoNumberStaysUnsettledAlone) {
  std::mt19937_64 random(6);
  std::vector<Problem> problems;
  for (const double wrong :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 0.0}) {
    problems.push_back(MakeProblem(KeyKind::kGaussian, 30, 0.2, 1.5, 0x1.0p-11, &random));
    if (wrong != 0.0) problems.back().keys[4 * kDim + 1] = wrong;
  }
  const auto batch = MakeBatch(3, 32);
  Load(batch.get(), problems);
  std::vector<SvddProposal> proposals = Read(batch.get(), 3);
  Counters counters;
  for (size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(proposals[k].status, SvddStatus::kUnsettled);
    EXPECT_FALSE(Canonical(problems[k].params, problems[k].keys, proposals[k], &counters).ok());
  }
  ASSERT_OK_AND_ASSIGN(const Solution mate, SolveCanonical(problems[2].params, problems[2].keys));
  ExpectSame(problems[2], proposals[2], mate, &counters);
  // Without the key it is a problem as any other.
  ASSERT_OK(batch->Remove({{0, {4}}, {1, {4}}}));
  for (size_t k = 0; k < 2; ++k) problems[k].keys = WithoutKeys(problems[k].keys, kDim, {4});
  ExpectCanonical(batch.get(), problems, &counters);
  // A proposal of other keys costs time, no more.
  proposals = Read(batch.get(), 3);
  ASSERT_OK_AND_ASSIGN(const Solution first, SolveCanonical(problems[0].params, problems[0].keys));
  ASSERT_OK_AND_ASSIGN(const Solution again,
                       Canonical(problems[0].params, problems[0].keys, proposals[1], &counters));
  EXPECT_TRUE(SameBits(first, again));
}

TEST_P(SvddBatchTest, RefusesWhatIsOutOfRange) {
  const auto message = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message(SvddBatch::Create(queue(), 1, 4097, 4).status()),
            "max_keys must be 1..4096, is 4097");
  EXPECT_EQ(message(SvddBatch::Create(queue(), 0, 4, 4).status()),
            "num_slots must be 1..1048576, is 0");
  EXPECT_EQ(message(SvddBatch::Create(queue(), 1, 4, 0).status()),
            "key_dim must be 1..65536, is 0");
  const auto batch = MakeBatch(2, 3, 2);
  const Params params = MakeParamsOrDie(1.0, 2.0, 0x1.0p-11, 2);
  const DeviceArray<double> keys = OnDevice(std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(message(batch->Load({{0, params, 4}}, keys.data())), "num_keys must be 0..3, is 4");
  EXPECT_EQ(message(batch->Load({{2, params, 1}}, keys.data())), "slot must be 0..1, is 2");
  EXPECT_EQ(message(batch->Load({{0, params, 1}, {0, params, 1}}, keys.data())),
            "slot 0 must be listed once");
  EXPECT_EQ(message(batch->Load({{0, MakeParamsOrDie(1.0, 2.0, 0x1.0p-11, 3), 1}}, keys.data())),
            "key_dim must be 2..2, is 3");
  EXPECT_EQ(message(batch->Add({1}, keys.data())), "slot 1 must be loaded, is free");
  ASSERT_OK(batch->Load({{0, params, 3}}, keys.data()));
  EXPECT_EQ(message(batch->Add({0}, keys.data())), "num_keys after Add must be 1..3, is 4");
  EXPECT_EQ(message(batch->Remove({{0, {0, 0}}})), "ranks must ascend in 0..2, have 0");
  EXPECT_EQ(message(batch->Remove({{0, {3}}})), "ranks must ascend in 0..2, have 3");
  EXPECT_EQ(message(batch->Remove({{1, {0}}})), "slot 1 must be loaded, is free");
  ASSERT_OK(batch->Remove({{0, {0, 1, 2}}}));
  ASSERT_OK(batch->Add({0}, keys.data()));
  EXPECT_EQ(batch->num_keys(0), 1);
  ASSERT_OK(batch->Load({}, nullptr));
  ASSERT_OK(batch->Remove({}));
}

}  // namespace
}  // namespace lethe::svdd
