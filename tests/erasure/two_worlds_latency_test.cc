// Goal: how long later calls take differs by less than kTellingShare between sessions that forgot and sessions that were never
// told. Less is not promised: a Forget writes a session anew, in memory and on disk, and its calls are up to about 1 % shorter
// afterwards. That a session forgot is no secret, its log says so; what it forgot is.
// Method: many sessions of both kinds in one server, made in random order and asked in random order; one number a session and call
// (the median of its runs); the ratio of the kinds' means, with Welch's t beside it. Control: sessions that hold what the
// others forgot are told apart. Not a test of speed; it runs only with --long.
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
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"

#include "tests/server/durable_world.h"
#include "tests/testing/long_run.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

constexpr double kTellingShare = 0.03;
constexpr int kSessionsEach = 200;
constexpr int kRuns = 31;

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

struct Comparison {
  double t = 0;      // Welch's
  double share = 0;  // by which the second mean is greater
};

Comparison Compare(const std::vector<double>& a, const std::vector<double>& b) {
  const auto moments = [](const std::vector<double>& x) {
    const auto count = static_cast<double>(x.size());
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / count;
    double sum = 0;
    for (const double value : x) sum += (value - mean) * (value - mean);
    return std::pair(mean, sum / (count - 1) / count);
  };
  const auto [mean_a, error_a] = moments(a);
  const auto [mean_b, error_b] = moments(b);
  return {(mean_b - mean_a) / std::sqrt(error_a + error_b), mean_b / mean_a - 1};
}

std::string Text(const Comparison& comparison) {
  return absl::StrFormat("t %.1f, %+.2f %%", comparison.t, 100 * comparison.share);
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
    for (int k = 0; k < 2; ++k) {
      EXPECT_OK(world_.Append(id, plain, "", absl::StrCat("a", k)).status());
    }
    if (past != Past::kUntold) {
      EXPECT_OK(world_.Append(id, plain + plain + plain, "secret", "s").status());
    }
    for (int k = 2; k < 4; ++k) {
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

  // Sessions that were never told with those of this past.
  Comparison CompareWith(Past past, const std::function<void(const std::string&, int)>& call) {
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
    return Compare(untold, others);
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
  const Comparison digest =
      CompareWith(Past::kForgot, [&](const std::string& id, int /*run*/) { AskDigest(id); });
  const Comparison answer = CompareWith(Past::kForgot, [&](const std::string& id, int run) {
    EXPECT_OK(world_.Generate(id, "so", absl::StrCat("g", run), 2));
  });
  const Comparison append = CompareWith(Past::kForgot, [&](const std::string& id, int run) {
    EXPECT_OK(world_.Append(id, "x", "", absl::StrCat("b", run)).status());
  });
  std::cout << "digest " << Text(digest) << "; answer " << Text(answer) << "; append "
            << Text(append) << "\n";
  EXPECT_LT(std::abs(digest.share), kTellingShare);
  EXPECT_LT(std::abs(answer.share), kTellingShare);
  EXPECT_LT(std::abs(append.share), kTellingShare);
}

TEST_F(TwoWorldsLatencyTest, WhoHoldsItIsToldApart) {
  MakeSubjects({Past::kUntold, Past::kHolds});
  const Comparison digest =
      CompareWith(Past::kHolds, [&](const std::string& id, int /*run*/) { AskDigest(id); });
  std::cout << "digest " << Text(digest) << "\n";
  EXPECT_GT(digest.share, kTellingShare);
}

}  // namespace
}  // namespace lethe::testing
