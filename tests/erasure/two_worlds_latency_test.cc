// Goal: how long later calls take tells little of a Forget. Once a session has left memory and come back it does not tell *what* was
// forgotten: between sessions that forgot one text and sessions that forgot another Welch's t stays below kTellingT.
// In memory the state that a Forget built lies where there was room, which goes with what was there before: 1 to 2.5 % of a digest's
// time, below kTellingShare. *That* a session forgot is no secret, its log says so: its calls are 1 to 4 % shorter.
// Method: many sessions of all kinds in one server, made in rounds of one of each and asked in random order; one number a session and call
// (the median of its runs); t and the ratio of the kinds' means. Control: sessions that hold what the others forgot are told
// apart. Not a test of speed; it runs only with --long.
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

constexpr double kTellingT = 4.5;
constexpr double kTellingShare = 0.06;
constexpr int kSessionsEach = 200;
constexpr int kRuns = 31;

enum class Past { kUntold, kForgot, kForgotOther, kHolds };

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
      std::string secret = plain + plain + plain;
      if (past == Past::kForgotOther) std::reverse(secret.begin(), secret.end());
      EXPECT_OK(world_.Append(id, secret, "secret", "s").status());
    }
    for (int k = 2; k < 4; ++k) {
      EXPECT_OK(world_.Append(id, plain, "", absl::StrCat("a", k)).status());
    }
    if (past == Past::kForgot || past == Past::kForgotOther) {
      EXPECT_OK(world_.Forget(id, "secret", "f").status());
    }
    return {id, past, {}};
  }

  void MakeSubjects(const std::vector<Past>& pasts) {
    // In rounds of one of each kind: where a session lies in memory, and so how fast it is, goes with when it was made.
    std::vector<Past> round = pasts;
    for (int i = 0; i < kSessionsEach; ++i) {
      std::shuffle(round.begin(), round.end(), random_);
      for (const Past past : round) subjects_.push_back(Make(past));
    }
  }

  // Asks all sessions, kRuns times each.
  void Measure(const std::function<void(const std::string&, int)>& call) {
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
  }

  // What was measured last.
  std::vector<double> MediansOf(Past past) const {
    std::vector<double> medians;
    for (const Subject& subject : subjects_) {
      if (subject.past == past) medians.push_back(Median(subject.seconds));
    }
    return medians;
  }

  void ExpectNotTold(const std::string& name,
                     const std::function<void(const std::string&, int)>& call) {
    Measure(call);
    const Comparison what = Compare(MediansOf(Past::kForgotOther), MediansOf(Past::kForgot));
    const Comparison whether = Compare(MediansOf(Past::kUntold), MediansOf(Past::kForgot));
    std::cout << name << ": what was forgotten " << Text(what) << "; whether anything was "
              << Text(whether) << "\n";
    EXPECT_LT(std::abs(what.share), kTellingShare) << name;
    if (came_back_) {
      EXPECT_LT(std::abs(what.t), kTellingT) << name;
    }
    EXPECT_LT(std::abs(whether.share), kTellingShare) << name;
  }

  void AskDigest(const std::string& id) {
    const std::shared_ptr<SessionEntry> entry = world_.Find(id);
    FairMutexLock lock(&entry->mutex);
    EXPECT_NE(entry->LiveModelSession().value()->Digest(), audit::Sha256Digest{});
  }

  DurableWorld world_;
  std::mt19937_64 random_{std::random_device()()};
  std::vector<Subject> subjects_;
  bool came_back_ = false;  // the sessions, from the store
};

TEST_F(TwoWorldsLatencyTest, TellsNobodyWhatWasForgotten) {
  MakeSubjects({Past::kUntold, Past::kForgot, Past::kForgotOther});
  ExpectNotTold("digest", [&](const std::string& id, int /*run*/) { AskDigest(id); });
  std::cout << "after a restart\n";
  world_.Close();
  ASSERT_OK(world_.Open());
  for (const Subject& subject : subjects_) AskDigest(subject.session_id);
  came_back_ = true;
  ExpectNotTold("digest", [&](const std::string& id, int /*run*/) { AskDigest(id); });
  ExpectNotTold("answer", [&](const std::string& id, int run) {
    EXPECT_OK(world_.Generate(id, "so", absl::StrCat("g", run), 2));
  });
  ExpectNotTold("append", [&](const std::string& id, int run) {
    EXPECT_OK(world_.Append(id, "x", "", absl::StrCat("b", run)).status());
  });
}

TEST_F(TwoWorldsLatencyTest, WhoHoldsItIsToldApart) {
  MakeSubjects({Past::kUntold, Past::kHolds});
  Measure([&](const std::string& id, int /*run*/) { AskDigest(id); });
  const Comparison digest = Compare(MediansOf(Past::kUntold), MediansOf(Past::kHolds));
  std::cout << "digest: " << Text(digest) << "\n";
  EXPECT_GT(digest.t, kTellingT);
  EXPECT_GT(digest.share, kTellingShare);
}

}  // namespace
}  // namespace lethe::testing
