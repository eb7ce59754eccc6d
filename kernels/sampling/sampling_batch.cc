#include "kernels/sampling/sampling_batch.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/on_cuda.h"
#include "kernels/sampling/sampling_cuda.h"

namespace lethe {
namespace {

int64_t SortSize(int64_t vocab) {
  if (vocab <= sampling::kSortTile) return 0;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(vocab)));
}

SampledRow SampleOnHost(const float* logits, int64_t vocab, const SamplingRow& row,
                        const int32_t* counts, TokenLogprob* top) {
  SamplingParameters parameters;
  parameters.temperature = row.temperature;
  parameters.top_k = row.top_k;
  parameters.top_p = row.top_p;
  parameters.min_p = row.min_p;
  parameters.repetition_penalty = row.repetition_penalty;
  parameters.seed = row.seed;
  parameters.top_logprobs = row.top_logprobs;
  std::vector<int64_t> wide_counts;
  if (row.count_slot >= 0) {
    wide_counts.assign(counts + row.count_slot * vocab, counts + (row.count_slot + 1) * vocab);
  }
  const absl::StatusOr<SampledToken> token = Sample(
      absl::MakeConstSpan(logits, static_cast<size_t>(vocab)), wide_counts, parameters, row.rank);
  if (!token.ok()) return {0.0, -1};  // the one thing that Sample rejects
  std::copy(token->top.begin(), token->top.end(), top);
  return {token->logprob, token->vocab_id};
}

}  // namespace

size_t SamplingWorkspaceBytes(int64_t num_rows, int64_t vocab) {
  return static_cast<size_t>(num_rows * SortSize(vocab)) * (sizeof(uint64_t) + sizeof(uint32_t));
}

absl::Status SampleBatch(Queue* queue, const float* logits, int64_t num_rows, int64_t vocab,
                         const SamplingRow* rows, const int32_t* counts, void* workspace,
                         SampledRow* sampled, TokenLogprob* top) {
  LETHE_CHECK(num_rows >= 0 && vocab >= 1 && vocab <= kSampledVocabMax);
  if (num_rows == 0) return absl::OkStatus();
  if (queue->kind() == DeviceKind::kCuda) {
    const int64_t sort_size = SortSize(vocab);
    auto* keys = static_cast<uint64_t*>(workspace);
    [[maybe_unused]] const sampling::CudaProblem problem = {
        .logits = logits,
        .num_rows = num_rows,
        .vocab = static_cast<int>(vocab),
        .sort_size = static_cast<int>(sort_size),
        .rows = rows,
        .counts = counts,
        .keys = keys,
        .ids = sort_size > 0 ? reinterpret_cast<uint32_t*>(keys + num_rows * sort_size) : nullptr,
        .sampled = sampled,
        .top = top};
    return LETHE_ON_CUDA(sampling::SampleCuda(queue, problem));
  }
  for (int64_t m = 0; m < num_rows; ++m) {
    sampled[m] = SampleOnHost(logits + m * vocab, vocab, rows[m], counts,
                              top != nullptr ? top + m * kTopLogprobsMax : nullptr);
  }
  return absl::OkStatus();
}

}  // namespace lethe
