// Goal: the ladder stays O(log T), and a Forget evaluates at most 2 (T - r) + 128 tokens, re-laying
// included, also after removals of many.
// Method: the plan alone, on simulated histories of appends and removals.

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "server/session/snapshot_ladder.h"

namespace lethe {
namespace {

// The ranks of a session's snapshots, without the snapshots.
class SimulatedLadder {
 public:
  void Append(int64_t count) {
    for (int64_t rank = head_ / 64 * 64 + 64; rank <= head_ + count; rank += 64) Insert(rank);
    head_ += count;
    ranks_.erase(std::remove_if(ranks_.begin(), ranks_.end(),
                                [&](int64_t rank) { return !IsOnLadder(rank, head_); }),
                 ranks_.end());
  }

  // Removes `count` inputs from `first_rank` on; returns the tokens evaluated.
  int64_t Forget(int64_t first_rank, int64_t count) {
    const int64_t after = head_ - count;
    const ReevaluationPlan plan = PlanReevaluation(ranks_, first_rank, head_, after);
    EXPECT_LE(plan.main.from, first_rank);
    EXPECT_EQ(plan.main.to, after);
    ranks_.erase(std::upper_bound(ranks_.begin(), ranks_.end(), first_rank), ranks_.end());
    int64_t previous = plan.main.from;
    for (const EvaluationRun& run : plan.re_laid) {
      EXPECT_LT(run.from, previous);  // by falling rank, as memories need it
      previous = run.from;
      Lay(run, after);
      Insert(run.to);
    }
    Lay(plan.main, after);
    head_ = after;
    return plan.num_tokens;
  }

  int64_t head() const { return head_; }
  size_t size() const { return ranks_.size(); }

 private:
  void Insert(int64_t rank) {
    const auto at = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
    if (at == ranks_.end() || *at != rank) ranks_.insert(at, rank);
  }
  void Lay(const EvaluationRun& run, int64_t head) {
    EXPECT_TRUE(std::binary_search(ranks_.begin(), ranks_.end(), run.from));
    for (int64_t rank = run.from + 64; rank <= run.to; rank += 64) {
      if (IsOnLadder(rank, head)) Insert(rank);
    }
  }

  int64_t head_ = 0;
  std::vector<int64_t> ranks_ = {0};
};

TEST(SnapshotLadderTest, SpacingIsAtMostAQuarterOfTheDistance) {
  EXPECT_EQ(LadderSpacing(0), 64);
  EXPECT_EQ(LadderSpacing(511), 64);
  EXPECT_EQ(LadderSpacing(512), 128);
  EXPECT_EQ(LadderSpacing(1023), 128);
  EXPECT_EQ(LadderSpacing(1024), 256);
  for (int64_t distance = 256; distance < 100000; distance += 77) {
    EXPECT_LE(LadderSpacing(distance), distance / 4);
    EXPECT_GT(LadderSpacing(distance), distance / 8);
  }
}

TEST(SnapshotLadderTest, WhatALaterHeadKeepsAnEarlierOneKeptToo) {
  for (int64_t rank = 0; rank <= 4096; rank += 64) {
    bool kept = true;
    for (int64_t head = rank; head < 20000; head += 13) {
      const bool now = IsOnLadder(rank, head);
      EXPECT_TRUE(kept || !now) << rank << " " << head;
      kept = now;
    }
  }
}

TEST(SnapshotLadderTest, NumberOfSnapshotsGrowsWithTheLogarithm) {
  SimulatedLadder ladder;
  ladder.Append(1024);
  size_t before = ladder.size();
  for (int doubling = 0; doubling < 8; ++doubling) {
    ladder.Append(ladder.head());
    EXPECT_LE(ladder.size(), before + 8);
    before = ladder.size();
  }
}

TEST(SnapshotLadderTest, EveryRankOfAGrownHistoryIsWithinBudget) {
  SimulatedLadder grown;
  grown.Append(5000);
  for (int64_t rank = 0; rank < 5000; rank += 3) {
    SimulatedLadder ladder = grown;
    EXPECT_LE(ladder.Forget(rank, 1), 2 * (5000 - rank) + 128) << rank;
  }
}

TEST(SnapshotLadderTest, AfterTheLastHalfIsGoneNearRanksAreCheap) {
  SimulatedLadder ladder;
  ladder.Append(20000);
  EXPECT_LE(ladder.Forget(10000, 10000), 2 * 10000 + 128);
  for (const int64_t distance : {10, 100, 1700}) {
    const int64_t rank = ladder.head() - distance;
    EXPECT_LE(ladder.Forget(rank, 1), 2 * distance + 128) << distance;
  }
}

TEST(SnapshotLadderTest, RandomHistoriesStayWithinBudget) {
  std::mt19937_64 random(11);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  for (int trial = 0; trial < 60; ++trial) {
    SimulatedLadder ladder;
    ladder.Append(300 + below(20000));
    for (int step = 0; step < 200 && ladder.head() > 1; ++step) {
      if (trial % 3 == 0 && below(3) == 0) {
        ladder.Append(1 + below(500));
        continue;
      }
      // Single inputs near the head, blocks at the end, and anything.
      const int64_t head = ladder.head();
      int64_t rank = head - 1;
      int64_t count = 1;
      if (trial % 3 == 1) {
        count = 1 + below(head / 4 + 1);
        rank = head - count;
      } else if (trial % 3 == 2) {
        rank = below(head);
        count = 1 + below(head - rank);
      }
      EXPECT_LE(ladder.Forget(rank, count), 2 * (head - rank) + 128) << trial << " " << step;
    }
  }
}

}  // namespace
}  // namespace lethe
