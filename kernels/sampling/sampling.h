// SamplingParameters, Sample: draws the next vocabulary id from logits.
//
// Equation:  in this order: repetition penalty (Keskar et al. 2019, CTRL, in the usual signed form:
//            for an id that the history holds, logit / penalty when positive, else logit *
//            penalty); temperature (logit / temperature; 0 is greedy: the largest logit); top_k
//            (the k largest); top_p (of those the smallest leading set whose probability reaches
//            top_p); min_p (of those all with at least min_p times the largest probability); one
//            draw from what is left, by Uniform53(seed, rank). Logprobs are log softmax of all
//            logits after penalty and temperature, before top_k, top_p and min_p (at temperature 0:
//            as at 1).
// Shapes:    logits: [vocab] f32, vocab >= 1; history_counts: [vocab], how often the retained
//            history holds each id, or empty when repetition_penalty is 1; only counts > 0 matter.
// Units:     logprob natural logarithm; rank of the token being drawn.
// Requires:  parameters that ValidateSampling accepts; history_counts of size vocab, or empty with
//            repetition_penalty 1; logits not empty (LETHE_CHECK on sizes).
// Rejects:   Sample: INTERNAL "NON_FINITE_LOGITS: …" when a logit is not finite. ValidateSampling:
//            INVALID_ARGUMENT naming field and range.
// Effects:   none.
// Numerics:  f64, kernels/math only; sums in order of candidates. A function of the arguments
//            alone. Ties go to the lowest id everywhere. Cost O(vocab), O(vocab log vocab) with
//            top_p.
// Threads:   safe.
#ifndef LETHE_KERNELS_SAMPLING_SAMPLING_H_
#define LETHE_KERNELS_SAMPLING_SAMPLING_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lethe {

struct SamplingParameters {
  double temperature = 0.0;         // 0 … 10; 0 is greedy
  int64_t top_k = 0;                // 0 … vocab; 0 is off
  double top_p = 1.0;               // (0, 1]; 1 is off
  double min_p = 0.0;               // [0, 1); 0 is off
  double repetition_penalty = 1.0;  // (0, 10]; 1 is off
  uint64_t seed = 0;
  int64_t top_logprobs = 0;  // 0 … 20, and no more than vocab are returned
  std::optional<int64_t>
      max_tokens;  // 0 … the caller's limit; 0 evaluates the prompt only; unset is the limit
};

// The message names the field as SamplingParameters does. NaN is out of every range.
absl::Status ValidateSampling(const SamplingParameters& parameters, int64_t vocab_size,
                              int64_t max_tokens_limit);

struct TokenLogprob {
  int32_t vocab_id = 0;
  double logprob = 0.0;  // <= 0; -inf where the temperature leaves nothing
};

struct SampledToken {
  int32_t vocab_id = 0;
  double logprob = 0.0;
  std::vector<TokenLogprob> top;  // min(top_logprobs, vocab), by falling logprob, ties by id
};

// The start of the message of the INTERNAL error, for the reason field of an RPC error.
inline constexpr char kNonFiniteLogits[] = "NON_FINITE_LOGITS";

absl::StatusOr<SampledToken> Sample(absl::Span<const float> logits,
                                    absl::Span<const int64_t> history_counts,
                                    const SamplingParameters& parameters, int64_t rank);

}  // namespace lethe

#endif  // LETHE_KERNELS_SAMPLING_SAMPLING_H_
