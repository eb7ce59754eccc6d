#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "kernels/base/check.h"
#include "kernels/math/math.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling.h"

namespace lethe {
namespace {

// The distribution after penalty and temperature, by vocabulary id.
struct Distribution {
  std::vector<double> logits;   // after the penalty
  std::vector<double> scaled;   // (logit - largest) / temperature, <= 0
  std::vector<double> weights;  // e^scaled, the largest is 1
  double log_total = 0.0;       // logarithm of the sum of weights
};

double Penalized(float logit, double penalty) {
  const auto wide = static_cast<double>(logit);
  // A tiny penalty may overflow; the bound keeps differences of logits finite.
  const double bound = std::numeric_limits<double>::max() / 4.0;
  return std::clamp(wide > 0.0 ? wide / penalty : wide * penalty, -bound, bound);
}

Distribution MakeDistribution(absl::Span<const float> logits,
                              absl::Span<const int64_t> history_counts,
                              const SamplingParameters& parameters) {
  const size_t vocab_size = logits.size();
  Distribution result;
  result.logits.resize(vocab_size);
  for (size_t i = 0; i < vocab_size; ++i) {
    const bool is_repeated = !history_counts.empty() && history_counts[i] > 0;
    result.logits[i] = Penalized(logits[i], is_repeated ? parameters.repetition_penalty : 1.0);
  }
  const double largest = *std::max_element(result.logits.begin(), result.logits.end());
  const double temperature = parameters.temperature > 0.0 ? parameters.temperature : 1.0;
  result.scaled.resize(vocab_size);
  for (size_t i = 0; i < vocab_size; ++i) {
    result.scaled[i] = (result.logits[i] - largest) / temperature;
  }
  result.weights.resize(vocab_size);
  Exp(result.scaled, absl::MakeSpan(result.weights));
  result.log_total =
      Log(std::accumulate(result.weights.begin(), result.weights.end(), double{0.0}));
  return result;
}

// The ids with the largest `count` logits, largest first, ties by id.
std::vector<int32_t> Largest(const std::vector<double>& logits, int64_t count) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto by_logit = [&logits](int32_t a, int32_t b) {
    const double logit_a = logits[static_cast<size_t>(a)];
    const double logit_b = logits[static_cast<size_t>(b)];
    return logit_a != logit_b ? logit_a > logit_b : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), by_logit);
  ids.resize(static_cast<size_t>(count));
  return ids;
}

std::vector<int32_t> Candidates(const Distribution& distribution,
                                const SamplingParameters& parameters) {
  const auto vocab_size = static_cast<int64_t>(distribution.logits.size());
  const auto weight = [&distribution](int32_t id) {
    return distribution.weights[static_cast<size_t>(id)];
  };
  const bool has_top_k = parameters.top_k > 0 && parameters.top_k < vocab_size;
  std::vector<int32_t> ids;
  if (has_top_k || parameters.top_p < 1.0) {
    ids = Largest(distribution.logits, has_top_k ? parameters.top_k : vocab_size);
  } else {
    ids.resize(static_cast<size_t>(vocab_size));
    std::iota(ids.begin(), ids.end(), 0);
  }
  if (parameters.top_p < 1.0) {
    double total = 0.0;
    for (const int32_t id : ids) total += weight(id);
    double sum = 0.0;
    size_t num_kept = 0;
    while (num_kept < ids.size() && sum < parameters.top_p * total) sum += weight(ids[num_kept++]);
    ids.resize(std::max<size_t>(1, num_kept));
  }
  if (parameters.min_p > 0.0) {
    const auto is_rare = [&](int32_t id) { return weight(id) < parameters.min_p; };
    ids.erase(std::remove_if(ids.begin(), ids.end(), is_rare), ids.end());
  }
  return ids;
}

int32_t Draw(const Distribution& distribution, const std::vector<int32_t>& ids, double uniform) {
  double total = 0.0;
  for (const int32_t id : ids) total += distribution.weights[static_cast<size_t>(id)];
  const double target = uniform * total;
  double sum = 0.0;
  int32_t drawn = ids.front();
  for (const int32_t id : ids) {
    const double weight = distribution.weights[static_cast<size_t>(id)];
    if (weight == 0.0) continue;
    drawn = id;  // the last one with weight, should rounding leave the target at the total
    sum += weight;
    if (sum > target) break;
  }
  return drawn;
}

}  // namespace

absl::StatusOr<SampledToken> Sample(absl::Span<const float> logits,
                                    absl::Span<const int64_t> history_counts,
                                    const SamplingParameters& parameters, int64_t rank) {
  LETHE_CHECK(!logits.empty());
  LETHE_CHECK(history_counts.size() == logits.size() ||
              (history_counts.empty() && parameters.repetition_penalty == 1.0));
  if (!std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); })) {
    return absl::InternalError(std::string(kNonFiniteLogits) + ": a logit is not a finite number");
  }
  const Distribution distribution = MakeDistribution(logits, history_counts, parameters);
  const auto logprob = [&distribution](int32_t id) {
    // A rounding error must not make a certain token more than certain.
    return std::min(0.0, distribution.scaled[static_cast<size_t>(id)] - distribution.log_total);
  };
  SampledToken token;
  if (parameters.temperature == 0.0) {
    token.vocab_id = Largest(distribution.logits, 1).front();
  } else {
    token.vocab_id = Draw(distribution, Candidates(distribution, parameters),
                          Uniform53(parameters.seed, static_cast<uint64_t>(rank)));
  }
  token.logprob = logprob(token.vocab_id);
  const int64_t num_top = std::min(parameters.top_logprobs, static_cast<int64_t>(logits.size()));
  for (const int32_t id : Largest(distribution.logits, num_top)) {
    token.top.push_back({id, logprob(id)});
  }
  return token;
}

}  // namespace lethe
