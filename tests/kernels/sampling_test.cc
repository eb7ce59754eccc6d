// Goal: Sample draws from the distribution its header states, and is a function of its arguments
// alone.
// Method: a plain reference with libm in this file, compared draw by draw; frequencies over many
// ranks; Philox against the vectors published with Random123 (Salmon et al., kat_vectors,
// philox4x32 10).
#include "kernels/sampling/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/sampling/philox.h"
#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::StatusIs;
using ::testing::ElementsAre;

TEST(PhiloxTest, EqualsThePublishedVectors) {
  EXPECT_THAT(Philox({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  EXPECT_THAT(
      Philox({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}),
      ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(
      Philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
      ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(PhiloxTest, UniformIsInItsRangeAndDependsOnSeedAndRank) {
  double sum = 0.0;
  for (uint64_t rank = 0; rank < 10000; ++rank) {
    const double u = Uniform53(7, rank);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.015);
  EXPECT_EQ(Uniform53(7, 3), Uniform53(7, 3));
  EXPECT_NE(Uniform53(7, 3), Uniform53(7, 4));
  EXPECT_NE(Uniform53(7, 3), Uniform53(8, 3));
  EXPECT_NE(Uniform53(7, 3), Uniform53(7 + (uint64_t{1} << 32), 3));
  EXPECT_NE(Uniform53(7, 3), Uniform53(7, 3 + (uint64_t{1} << 32)));
}

std::vector<float> RandomLogits(size_t vocab_size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> logits(vocab_size);
  // Rounded to quarters, so that ties are frequent.
  for (float& logit : logits) logit = std::round(normal(random) * 8.0f) / 4.0f;
  return logits;
}

std::vector<int64_t> RandomCounts(size_t vocab_size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> counts(vocab_size);
  for (int64_t& count : counts) count = random() % 3 == 0 ? 1 + random() % 5 : 0;
  return counts;
}

struct Reference {
  std::vector<double> logprobs;                  // by id
  std::vector<std::pair<int32_t, double>> kept;  // id, probability, in the order of the draw
};

Reference Evaluate(const std::vector<float>& logits, const std::vector<int64_t>& counts,
                   const SamplingParameters& p) {
  std::vector<double> z(logits.begin(), logits.end());
  for (size_t i = 0; i < z.size(); ++i) {
    if (counts[i] > 0) z[i] = z[i] > 0 ? z[i] / p.repetition_penalty : z[i] * p.repetition_penalty;
    if (p.temperature > 0) z[i] /= p.temperature;
  }
  double total = 0.0;
  for (const double value : z) total += std::exp(value);
  Reference result;
  for (const double value : z) result.logprobs.push_back(value - std::log(total));
  std::vector<int32_t> order(z.size());
  std::iota(order.begin(), order.end(), 0);
  const bool sorted = (p.top_k > 0 && p.top_k < static_cast<int64_t>(z.size())) || p.top_p < 1.0;
  if (sorted) {
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return z[static_cast<size_t>(a)] > z[static_cast<size_t>(b)];
    });
  }
  if (p.top_k > 0) order.resize(std::min<size_t>(order.size(), static_cast<size_t>(p.top_k)));
  const double largest = *std::max_element(z.begin(), z.end());
  double mass = 0.0;
  for (const int32_t id : order) mass += std::exp(z[static_cast<size_t>(id)]);
  double sum = 0.0;
  double kept_mass = 0.0;
  for (const int32_t id : order) {
    const double weight = std::exp(z[static_cast<size_t>(id)]);
    if (p.top_p < 1.0 && sum >= p.top_p * mass) break;
    sum += weight;
    if (weight < p.min_p * std::exp(largest)) continue;
    kept_mass += weight;
    result.kept.emplace_back(id, weight);
  }
  for (auto& [id, weight] : result.kept) weight /= kept_mass;
  return result;
}

TEST(SamplingTest, DrawsWhatTheReferenceDraws) {
  std::mt19937 random(1);
  for (uint32_t repeat = 0; repeat < 3000; ++repeat) {
    const size_t vocab_size = 1 + random() % 60;
    const std::vector<float> logits = RandomLogits(vocab_size, repeat);
    const std::vector<int64_t> counts = RandomCounts(vocab_size, repeat);
    SamplingParameters p;
    // Odd fractions keep the thresholds off the sums that ties produce.
    p.temperature = 0.07 + 0.31 * static_cast<double>(random() % 9);
    p.top_k = random() % 2 == 0 ? 0 : static_cast<int64_t>(random() % (vocab_size + 1));
    p.top_p = random() % 2 == 0 ? 1.0 : 0.0137 + 0.0973 * static_cast<double>(random() % 10);
    p.min_p = random() % 2 == 0 ? 0.0 : 0.0131 + 0.0973 * static_cast<double>(random() % 10);
    p.repetition_penalty =
        random() % 2 == 0 ? 1.0 : 0.53 + 0.31 * static_cast<double>(random() % 5);
    p.seed = random();
    ASSERT_OK(ValidateSampling(p, static_cast<int64_t>(vocab_size), 100));
    const Reference reference = Evaluate(logits, counts, p);
    const int64_t rank = random() % 1000;
    ASSERT_OK_AND_ASSIGN(const SampledToken token, Sample(logits, counts, p, rank));
    EXPECT_NEAR(token.logprob, reference.logprobs[static_cast<size_t>(token.vocab_id)], 1e-12);
    const double u = Uniform53(p.seed, static_cast<uint64_t>(rank));
    double sum = 0.0;
    for (const auto& [id, probability] : reference.kept) {
      sum += probability;
      if (std::abs(sum - u) < 1e-9) break;  // too near to call by another rounding
      if (sum > u) {
        EXPECT_EQ(token.vocab_id, id) << repeat;
        break;
      }
    }
  }
}

TEST(SamplingTest, FrequenciesOverRanksAreTheProbabilities) {
  const std::vector<float> logits = {1.0f, 0.0f, -1.0f, 2.0f};
  SamplingParameters p;
  p.temperature = 1.0;
  p.seed = 42;
  std::vector<int> hits(4, 0);
  constexpr int kDraws = 20000;
  for (int64_t rank = 0; rank < kDraws; ++rank) {
    ++hits[static_cast<size_t>(Sample(logits, {}, p, rank)->vocab_id)];
  }
  const Reference reference = Evaluate(logits, std::vector<int64_t>(4, 0), p);
  for (size_t id = 0; id < 4; ++id) {
    EXPECT_NEAR(hits[id] / static_cast<double>(kDraws), std::exp(reference.logprobs[id]), 0.015);
  }
}

TEST(SamplingTest, GreedyTakesTheLargestAndTiesGoToTheLowestId) {
  SamplingParameters p;
  EXPECT_EQ(Sample({1.0f, 3.0f, 3.0f, 2.0f}, {}, p, 0)->vocab_id, 1);
  EXPECT_EQ(Sample({0.0f, -0.0f}, {}, p, 0)->vocab_id, 0);
  EXPECT_EQ(Sample({-0.0f, 0.0f}, {}, p, 0)->vocab_id, 0);
  p.repetition_penalty = 2.0;
  EXPECT_EQ(Sample({1.0f, 3.0f, 3.0f, 2.0f}, {0, 4, 0, 0}, p, 0)->vocab_id, 2);
  EXPECT_EQ(Sample({-1.0f, -1.5f}, {1, 0}, p, 0)->vocab_id, 1);  // negative: multiplied
}

TEST(SamplingTest, TopOneIsGreedyAndTinyTemperatureIsToo) {
  SamplingParameters p;
  p.temperature = 1.0;
  p.top_k = 1;
  EXPECT_EQ(Sample({1.0f, 3.0f, 3.0f}, {}, p, 9)->vocab_id, 1);
  p.top_k = 0;
  p.top_p = 1e-300;
  EXPECT_EQ(Sample({1.0f, 3.0f, 3.0f}, {}, p, 9)->vocab_id, 1);
  p.top_p = 1.0;
  p.temperature = 5e-324;
  EXPECT_EQ(Sample({1.0f, 3.0f, 2.0f}, {}, p, 9)->vocab_id, 1);
}

TEST(SamplingTest, ExtremeLogitsAndPenaltiesStayDefined) {
  SamplingParameters p;
  p.temperature = 1.0;
  p.repetition_penalty = 5e-324;
  p.top_logprobs = 2;
  const float big = std::numeric_limits<float>::max();
  ASSERT_OK_AND_ASSIGN(const SampledToken token, Sample({big, -big, big}, {1, 0, 1}, p, 0));
  EXPECT_NE(token.vocab_id, 1);
  EXPECT_NEAR(token.logprob, -std::log(2.0), 1e-12);
}

TEST(SamplingTest, TopLogprobsAreSortedWithTiesByIdAndNoMoreThanTheVocabulary) {
  SamplingParameters p;
  p.top_logprobs = 3;
  ASSERT_OK_AND_ASSIGN(const SampledToken token, Sample({1.0f, 2.0f, 2.0f, 0.0f}, {}, p, 0));
  ASSERT_EQ(token.top.size(), 3u);
  EXPECT_EQ(token.top[0].vocab_id, 1);
  EXPECT_EQ(token.top[1].vocab_id, 2);
  EXPECT_EQ(token.top[2].vocab_id, 0);
  EXPECT_EQ(token.top[0].logprob, token.logprob);
  p.top_logprobs = 20;
  ASSERT_OK_AND_ASSIGN(const SampledToken only, Sample({5.0f}, {}, p, 0));
  ASSERT_EQ(only.top.size(), 1u);
  EXPECT_EQ(only.logprob, 0.0);
}

TEST(SamplingTest, NonFiniteLogitsAreAnError) {
  const SamplingParameters p;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(Sample({0.0f, bad}, {}, p, 0),
                StatusIs(absl::StatusCode::kInternal, "NON_FINITE_LOGITS"));
  }
}

TEST(SamplingTest, SameArgumentsGiveTheSameTokenAndTheRankMatters) {
  const std::vector<float> logits(1000, 0.0f);
  SamplingParameters p;
  p.temperature = 1.0;
  p.seed = 5;
  EXPECT_EQ(Sample(logits, {}, p, 17)->vocab_id, Sample(logits, {}, p, 17)->vocab_id);
  EXPECT_NE(Sample(logits, {}, p, 17)->vocab_id, Sample(logits, {}, p, 18)->vocab_id);
}

TEST(SamplingDeathTest, CountsOfAnotherSizeAbort) {
  SamplingParameters p;
  EXPECT_DEATH(static_cast<void>(Sample({}, {}, p, 0)), "check failed");
  EXPECT_DEATH(static_cast<void>(Sample({1.0f, 2.0f}, {1}, p, 0)), "check failed");
  p.repetition_penalty = 1.1;
  EXPECT_DEATH(static_cast<void>(Sample({1.0f, 2.0f}, {}, p, 0)), "check failed");
}

TEST(ValidateSamplingTest, NamesTheFieldThatIsOutOfRange) {
  const auto refused = [](auto change, const char* field) {
    SamplingParameters p;
    change(&p);
    EXPECT_THAT(ValidateSampling(p, 256, 1000),
                StatusIs(absl::StatusCode::kInvalidArgument, field));
  };
  using P = SamplingParameters*;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {-0.1, 10.1, nan, 1.0 / 0.0}) {
    refused([bad](P p) { p->temperature = bad; }, "temperature");
  }
  for (const int64_t bad : {-1, 257}) refused([bad](P p) { p->top_k = bad; }, "top_k");
  for (const double bad : {0.0, 1.01, -1.0, nan}) refused([bad](P p) { p->top_p = bad; }, "top_p");
  for (const double bad : {-0.01, 1.0, nan}) refused([bad](P p) { p->min_p = bad; }, "min_p");
  for (const double bad : {0.0, -1.0, 10.5, nan}) {
    refused([bad](P p) { p->repetition_penalty = bad; }, "repetition_penalty");
  }
  for (const int64_t bad : {-1, 21}) refused([bad](P p) { p->top_logprobs = bad; }, "top_logprobs");
  for (const int64_t bad : {-1, 1001}) refused([bad](P p) { p->max_tokens = bad; }, "max_tokens");
}

TEST(ValidateSamplingTest, EndsOfEveryRangeAreAccepted) {
  SamplingParameters p;
  EXPECT_OK(ValidateSampling(p, 256, 1000));
  p = {.temperature = 10,
       .top_k = 256,
       .top_p = 1,
       .min_p = 0,
       .repetition_penalty = 10,
       .seed = ~uint64_t{0},
       .top_logprobs = 20,
       .max_tokens = 1000};
  EXPECT_OK(ValidateSampling(p, 256, 1000));
  p.max_tokens = 0;
  p.top_p = 1e-9;
  p.min_p = 0.999;
  p.repetition_penalty = 1e-9;
  EXPECT_OK(ValidateSampling(p, 256, 1000));
}

}  // namespace
}  // namespace lethe
