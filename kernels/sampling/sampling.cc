#include "kernels/sampling/sampling.h"

#include "absl/strings/str_cat.h"

namespace lethe {
namespace {

constexpr double kTemperatureMax = 10.0;
constexpr double kPenaltyMax = 10.0;
constexpr int64_t kTopLogprobsMax = 20;

}  // namespace

absl::Status ValidateSampling(const SamplingParameters& parameters, int64_t vocab_size,
                              int64_t max_tokens_limit) {
  // Written so that NaN fails every test.
  if (!(parameters.temperature >= 0.0 && parameters.temperature <= kTemperatureMax)) {
    return absl::InvalidArgumentError("temperature must be in 0 … 10");
  }
  if (parameters.top_k < 0 || parameters.top_k > vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("top_k must be in 0 … ", vocab_size, " (0 is off)"));
  }
  if (!(parameters.top_p > 0.0 && parameters.top_p <= 1.0)) {
    return absl::InvalidArgumentError("top_p must be above 0 and at most 1");
  }
  if (!(parameters.min_p >= 0.0 && parameters.min_p < 1.0)) {
    return absl::InvalidArgumentError("min_p must be at least 0 and below 1");
  }
  if (!(parameters.repetition_penalty > 0.0 && parameters.repetition_penalty <= kPenaltyMax)) {
    return absl::InvalidArgumentError("repetition_penalty must be above 0 and at most 10");
  }
  if (parameters.top_logprobs < 0 || parameters.top_logprobs > kTopLogprobsMax) {
    return absl::InvalidArgumentError("top_logprobs must be in 0 … 20");
  }
  if (parameters.max_tokens.has_value() &&
      (*parameters.max_tokens < 0 || *parameters.max_tokens > max_tokens_limit)) {
    return absl::InvalidArgumentError(absl::StrCat("max_tokens must be in 0 … ", max_tokens_limit));
  }
  return absl::OkStatus();
}

}  // namespace lethe
