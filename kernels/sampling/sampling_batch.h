// SamplingRow, SampleBatch: Sample for the logits of many sessions, on the queue's device.
//
// Equation:  as in sampling.h, row by row.
// Shapes:    logits: [num_rows][vocab] f32; rows: [num_rows]; counts: [num_count_slots][vocab], how often
//            the retained history of a session holds each id, or null where no row has a count_slot;
//            sampled: [num_rows]; top: [num_rows][kTopLogprobsMax], row m's first min(top_logprobs, vocab)
//            entries, or null where no row wants any. workspace: SamplingWorkspaceBytes, aligned to 256
//            bytes. num_rows may be 0 (no-op).
// Units:     logprob natural logarithm.
// Requires:  vocab 1 … 2^18 (LETHE_CHECK); of every row what ValidateSampling accepts, top_logprobs at
//            most kTopLogprobsMax, count_slot -1 with repetition_penalty 1 or a slot; all arrays on the
//            queue's device. The caller's to check: the device does not.
// Rejects:   INTERNAL when the launch fails. A row with a logit that is not finite is reported in its
//            result (vocab_id -1) and hurts no other.
// Effects:   enqueues the work that writes sampled and top.
// Numerics:  Sample's result to the bit, on both devices: the same f64 operations, sums in the same order.
//            On CUDA a sum in order is taken 4,096 numbers at a time (sampling_cuda.cuh says why this
//            is exact). A row's result depends on the row alone. Cost O(vocab) a row, O(vocab log^2
//            vocab) with top_p and without a top_k up to 1,024.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_SAMPLING_SAMPLING_BATCH_H_
#define LETHE_KERNELS_SAMPLING_SAMPLING_BATCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"
#include "kernels/sampling/sampling.h"

namespace lethe {

inline constexpr int kTopLogprobsMax = 20;
inline constexpr int64_t kSampledVocabMax = int64_t{1} << 18;

// SamplingParameters' fields of the same names.
struct SamplingRow {
  double temperature = 0.0;
  double top_p = 1.0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  uint64_t seed = 0;
  int64_t rank = 0;  // of the token being drawn
  int32_t top_k = 0;
  int32_t count_slot = -1;  // -1: no counts
  int32_t top_logprobs = 0;
};

struct SampledRow {
  double logprob = 0.0;
  int32_t vocab_id = 0;  // -1: a logit is not finite
};

size_t SamplingWorkspaceBytes(int64_t num_rows, int64_t vocab);

absl::Status SampleBatch(Queue* queue, const float* logits, int64_t num_rows, int64_t vocab,
                         const SamplingRow* rows, const int32_t* counts, void* workspace,
                         SampledRow* sampled, TokenLogprob* top);

}  // namespace lethe

#endif  // LETHE_KERNELS_SAMPLING_SAMPLING_BATCH_H_
