// Goal: how long later calls take does not tell a session that forgot from one that was never told.
// Method: many sessions of both kinds in one server, made in random order and asked in random order; one number a session and call
// (the median of its runs), Welch's t between the kinds, |t| < 4.5. Control: sessions that hold what the others
// forgot are told apart. Not a test of speed: it takes two minutes, and only with --long.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/server/durable_world.h"
#include "tests/testing/long_run.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

constexpr double kTellingT = 4.5;
constexpr int kSessionsEach = 60;
constexpr int kRuns = 41;

enum class Past { kUntold, kForgot, kHolds };

struct Subject {
  std::string session_id;
  Past past = Past::kUntold;
  std::vector<double> seconds;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Welch's t of two samples.
double WelchT(const std::vector<double>& a, const std::vector<double>& b) {
  const auto moments = [](const std::vector<double>& x) {
    const auto count = static_cast<double>(x.size());
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / count;
    double sum = 0;
    for (const double value : x) sum += (value - mean) * (value - mean);
    return std::pair(mean, sum / (count - 1) / count);
  };
  const auto [mean_a, error_a] = moments(a);
  const auto [mean_b, error_b] = moments(b);
  return (mean_a - mean_b) / std::sqrt(error_a + error_b);
}

class TwoWorldsLatencyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!IsLongTest()) GTEST_SKIP() << "only with --long";
    ASSERT_OK(world_.Open());
  }

  // A history of a few hundred tokens, the secret in its middle.
  Subject Make(Past past) {
    const std::string id = world_.NewModelSession()->session_id;
    const std::string plain = "what all of them are told, again and again and again; ";
    for (int k = 0; k < 3; ++k) {
      EXPECT_OK(world_.Append(id, plain, "", absl::StrCat("a", k)).status());
    }
    if (past != Past::kUntold) {
      EXPECT_OK(world_.Append(id, plain, "secret", "s").status());
    }
    for (int k = 3; k < 6; ++k) {
      EXPECT_OK(world_.Append(id, plain, "", absl::StrCat("a", k)).status());
    }
    if (past == Past::kForgot) {
      EXPECT_OK(world_.Forget(id, "secret", "f").status());
    }
    return {id, past, {}};
  }

  void MakeSubjects(const std::vector<Past>& pasts) {
    std::vector<Past> order;
    for (const Past past : pasts) order.insert(order.end(), kSessionsEach, past);
    std::shuffle(order.begin(), order.end(), random_);
    for (const Past past : order) subjects_.push_back(Make(past));
  }

  // t between sessions that were never told and those of this past.
  double Compare(Past past, const std::function<void(const std::string&, int)>& call) {
    for (Subject& subject : subjects_) subject.seconds.clear();
    std::vector<Subject*> order;
    for (Subject& subject : subjects_) order.push_back(&subject);
    for (int run = 0; run < kRuns; ++run) {
      std::shuffle(order.begin(), order.end(), random_);
      for (Subject* const subject : order) {
        const auto start = std::chrono::steady_clock::now();
        call(subject->session_id, run);
        subject->seconds.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
    }
    std::vector<double> untold;
    std::vector<double> others;
    for (const Subject& subject : subjects_) {
      if (subject.past == Past::kUntold) untold.push_back(Median(subject.seconds));
      if (subject.past == past) others.push_back(Median(subject.seconds));
    }
    return WelchT(untold, others);
  }

  void AskDigest(const std::string& id) {
    const std::shared_ptr<SessionEntry> entry = world_.Find(id);
    FairMutexLock lock(&entry->mutex);
    EXPECT_NE(entry->LiveModelSession().value()->Digest(), audit::Sha256Digest{});
  }

  DurableWorld world_;
  std::mt19937_64 random_{7};
  std::vector<Subject> subjects_;
};

TEST_F(TwoWorldsLatencyTest, TellsNobodyWhoForgot) {
  MakeSubjects({Past::kUntold, Past::kForgot});
  const double digest =
      Compare(Past::kForgot, [&](const std::string& id, int /*run*/) { AskDigest(id); });
  const double answer = Compare(Past::kForgot, [&](const std::string& id, int run) {
    EXPECT_OK(world_.Generate(id, "and so ", absl::StrCat("g", run), 2));
  });
  const double append = Compare(Past::kForgot, [&](const std::string& id, int run) {
    EXPECT_OK(world_.Append(id, "goes on", "", absl::StrCat("b", run)).status());
  });
  std::cout << "t of digest " << digest << ", answer " << answer << ", append " << append << "\n";
  EXPECT_LT(std::abs(digest), kTellingT);
  EXPECT_LT(std::abs(answer), kTellingT);
  EXPECT_LT(std::abs(append), kTellingT);
}

TEST_F(TwoWorldsLatencyTest, WhoHoldsItIsToldApart) {
  MakeSubjects({Past::kUntold, Past::kHolds});
  const double digest =
      Compare(Past::kHolds, [&](const std::string& id, int /*run*/) { AskDigest(id); });
  std::cout << "t of digest " << digest << "\n";
  EXPECT_GT(std::abs(digest), kTellingT);
}

}  // namespace
}  // namespace lethe::testing
