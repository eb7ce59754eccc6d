// Goal: the code of a team (svdd_block_solve.h and below) says nothing else when several threads run it than when one
// does, and leaves no access unordered.
// Method: a team of four host threads, two warps of two lanes, takes loads, additions and removals; its partitions
// against those of the team of one. Under ThreadSanitizer (tests/run tsan) a missing Sync is a reported race, for
// which a GPU needs racecheck.
#include <barrier>
#include <cmath>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/gram/gram.h"
#include "memory/svdd/svdd_batch_device.h"
#include "memory/svdd/svdd_block_edit.h"
#include "tests/memory/svdd_testing.h"

namespace lethe::svdd {
namespace {

constexpr int kThreads = 4;
constexpr int64_t kDim = 3;

struct TeamShared {
  std::barrier<> barrier{kThreads};
  BestAndMost ends[2][kThreads];
  TwoSums sums[2][kThreads];
  int count = 0;
};

class ThreadTeam {
 public:
  ThreadTeam(int rank, TeamShared* shared) : rank_(rank), shared_(shared) {}
  int rank() const { return rank_; }
  int size() const { return kThreads; }
  int lane() const { return rank_ % 2; }
  int lanes() const { return 2; }
  int warp() const { return rank_ / 2; }
  int warps() const { return kThreads / 2; }
  void Sync() { shared_->barrier.arrive_and_wait(); }
  BestAndMost LeastAndMost(const BestAndMost& own) {
    turn_ ^= 1;
    shared_->ends[turn_][rank_] = own;
    Sync();
    BestAndMost all;
    for (const BestAndMost& ends : shared_->ends[turn_]) {
      all.best = Lesser(all.best, ends.best);
      all.most = std::fmax(all.most, ends.most);
    }
    return all;
  }
  Best Least(const Best& own) { return LeastAndMost({own, 0.0}).best; }
  TwoSums Sum(const TwoSums& own) {
    turn_ ^= 1;
    shared_->sums[turn_][rank_] = own;
    Sync();
    TwoSums all;
    for (const TwoSums& sums : shared_->sums[turn_]) {
      all.first += sums.first;
      all.second += sums.second;
    }
    return all;
  }
  template <typename Value>
  int Compact(int count, const Value& value, int32_t* out) {
    if (rank_ == 0) shared_->count = HostTeam().Compact(count, value, out);
    Sync();
    const int kept = shared_->count;
    Sync();
    return kept;
  }

 private:
  int rank_;
  TeamShared* shared_;
  int turn_ = 0;
};

template <typename Team>
class TeamGram {
 public:
  explicit TeamGram(Team* team) : team_(team) {}
  void Fill(const BlockProblem& problem, int32_t n) {
    for (int32_t i = team_->rank(); i < n; i += team_->size()) Evaluate(problem, i, n);
    team_->Sync();
  }
  void Row(const BlockProblem& problem, int32_t row) {
    const int32_t n = problem.head->num_keys;
    if (team_->rank() == 0) {
      Evaluate(problem, row, n);
      for (int32_t i = 0; i < n; ++i) problem.Row(i)[row] = problem.Row(row)[i];
    }
    team_->Sync();
  }

 private:
  static void Evaluate(const BlockProblem& problem, int32_t row, int32_t n) {
    const absl::Span<const double> keys(problem.keys, static_cast<size_t>(n) * kDim);
    GramRow(keys.subspan(static_cast<size_t>(row) * kDim, kDim), keys, problem.head->sigma,
            {problem.Row(row), static_cast<size_t>(n)});
  }
  Team* team_;
};

// One slot and a workspace.
class Block {
 public:
  Block(int64_t max_keys, int32_t exchanges_per_key)
      : keys_(Size(max_keys * kDim)),
        gram_(Size(max_keys * max_keys)),
        a_(Size(max_keys)),
        classes_(Size(max_keys)),
        row_of_rank_(Size(max_keys)),
        small_(kSmallFactorDoubles),
        doubles_(Size(WorkDoubles(max_keys))),
        vectors_(BlockVectorBytes(max_keys) / sizeof(double)) {
    pool_ = {&head_,
             keys_.data(),
             gram_.data(),
             a_.data(),
             classes_.data(),
             row_of_rank_.data(),
             max_keys,
             kDim,
             static_cast<int32_t>(max_keys),
             exchanges_per_key};
    work_ = PlaceWorkspace(max_keys, doubles_.data(), small_.data(),
                           reinterpret_cast<std::byte*>(vectors_.data()));
  }

  void Run(bool in_threads, SvddOperation operation, const SvddJob& job,
           const SvddArguments& arguments) {
    if (!in_threads) {
      HostTeam team;
      TeamGram<HostTeam> gram(&team);
      RunJob(&team, &gram, pool_, work_, operation, job, 0, arguments);
      return;
    }
    TeamShared shared;
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int rank = 0; rank < kThreads; ++rank) {
      threads.emplace_back([&, rank] {
        ThreadTeam team(rank, &shared);
        TeamGram<ThreadTeam> gram(&team);
        RunJob(&team, &gram, pool_, work_, operation, job, 0, arguments);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const SvddHead& head() const { return head_; }
  const std::vector<double>& a() const { return a_; }
  const std::vector<uint8_t>& classes() const { return classes_; }
  const std::vector<int32_t>& row_of_rank() const { return row_of_rank_; }

 private:
  static size_t Size(int64_t count) { return static_cast<size_t>(count); }

  SvddHead head_;
  std::vector<double> keys_, gram_, a_;
  std::vector<uint8_t> classes_;
  std::vector<int32_t> row_of_rank_;
  std::vector<double> small_, doubles_, vectors_;
  SvddPool pool_ = {};
  BlockWorkspace work_ = {};
};

void ExpectSame(const Block& one, const Block& many) {
  EXPECT_EQ(one.head().status, SvddStatus::kSettled);
  EXPECT_EQ(many.head().status, SvddStatus::kSettled);
  EXPECT_EQ(one.classes(), many.classes());
  EXPECT_EQ(one.row_of_rank(), many.row_of_rank());
  for (size_t i = 0; i < one.a().size(); ++i) EXPECT_NEAR(one.a()[i], many.a()[i], 1e-9);
}

class SvddTeamTest : public ::testing::TestWithParam<int32_t> {};

TEST_P(SvddTeamTest, ThreadsAgreeWithOne) {
  std::mt19937_64 random(1);
  for (const auto& [n, sigma] : {std::pair<int64_t, double>{24, 1.5}, {150, 0.2}}) {
    SvddHead head;
    head.box_mass = 0.3 * static_cast<double>(n);
    head.sigma = sigma;
    head.ridge = 0x1.0p-11;
    head.num_keys = static_cast<int32_t>(n);
    const std::vector<double> keys = MakeKeys(KeyKind::kGaussian, n + 1, kDim, &random);
    SvddArguments arguments;
    arguments.heads = &head;
    arguments.keys = keys.data();
    const std::vector<int32_t> ranks = {0, 5, static_cast<int32_t>(n - 1)};
    arguments.ranks = ranks.data();
    Block one(n + 1, GetParam());
    Block many(n + 1, GetParam());
    const auto run = [&](SvddOperation operation, const SvddJob& job) {
      one.Run(false, operation, job, arguments);
      many.Run(true, operation, job, arguments);
      ExpectSame(one, many);
    };
    run(SvddOperation::kLoad, {0, 0, 0});
    run(SvddOperation::kAdd, {0, 0, n});
    run(SvddOperation::kRemove, {0, 3, 0});
  }
}

INSTANTIATE_TEST_SUITE_P(ExchangesAKey, SvddTeamTest, ::testing::Values(0, 4));

}  // namespace
}  // namespace lethe::svdd
