#include "kernels/ovq/ovq_batch_cpu.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"

#include "kernels/math/math.h"

namespace lethe {
namespace {

// One head of one sequence. OvqRead and OvqMerge want the filled slots in vectors of their own, so a
// call copies them in and, after a merge, back.
class Head {
 public:
  Head(const OvqShape& shape, const OvqBatchSize& size, const OvqInputs& inputs,
       const OvqStates& states, int64_t sequence, int64_t head)
      : shape_(shape),
        size_(size),
        inputs_(inputs),
        sequence_(sequence),
        head_(head),
        num_tokens_(inputs.num_tokens_before[sequence]) {
    const int64_t row = inputs.states[sequence] * size.num_heads + head;
    keys_ = states.keys + row * shape.max_slots * shape.key_dim;
    values_ = states.values + row * shape.max_slots * shape.value_dim;
    counts_ = states.counts + row * shape.max_slots;
    pending_keys_ = states.pending_keys + row * shape.chunk_tokens * shape.key_dim;
    pending_values_ = states.pending_values + row * shape.chunk_tokens * shape.value_dim;
    const int64_t filled = OvqFilledSlots(shape, num_tokens_);
    slots_.keys.assign(keys_, keys_ + filled * shape.key_dim);
    slots_.values.assign(values_, values_ + filled * shape.value_dim);
    slots_.counts.assign(counts_, counts_ + filled);
    for (int32_t count : slots_.counts) {
      slots_.log_counts.push_back(Log(static_cast<float>(count)));
    }
  }

  void Run(float* out, int32_t* assignments) {
    const int64_t max_merges = (size_.max_length + shape_.chunk_tokens - 1) / shape_.chunk_tokens;
    const int64_t last = inputs_.offsets[sequence_ + 1];
    int64_t num_merges = 0;
    for (int64_t row = inputs_.offsets[sequence_]; row < last;) {
      const int64_t pending = num_tokens_ % shape_.chunk_tokens;
      const int64_t count = std::min(last - row, shape_.chunk_tokens - pending);
      Read(row, pending, count, out);
      num_tokens_ += count;
      row += count;
      if (num_tokens_ % shape_.chunk_tokens != 0) continue;
      const int64_t place = (sequence_ * max_merges + num_merges) * size_.num_heads + head_;
      Merge(assignments == nullptr ? nullptr : assignments + place * shape_.chunk_tokens);
      ++num_merges;
    }
    if (num_merges == 0) return;
    std::copy(slots_.keys.begin(), slots_.keys.end(), keys_);
    std::copy(slots_.values.begin(), slots_.values.end(), values_);
    std::copy(slots_.counts.begin(), slots_.counts.end(), counts_);
  }

 private:
  OvqChunk Pending(int64_t size) const {
    return {{pending_keys_, static_cast<size_t>(shape_.chunk_tokens * shape_.key_dim)},
            {pending_values_, static_cast<size_t>(shape_.chunk_tokens * shape_.value_dim)},
            size};
  }

  // Rows row .. row + count - 1 of the call join the pending ones and are read.
  void Read(int64_t row, int64_t pending, int64_t count, float* out) {
    const auto num_keys = static_cast<size_t>(count * shape_.key_dim);
    std::vector<float> queries(num_keys);
    std::vector<float> reads(static_cast<size_t>(count * shape_.value_dim));
    for (int64_t t = 0; t < count; ++t) {
      const int64_t token_head = (row + t) * size_.num_heads + head_;
      std::copy_n(inputs_.k + token_head * shape_.key_dim, shape_.key_dim,
                  pending_keys_ + (pending + t) * shape_.key_dim);
      std::copy_n(inputs_.v + token_head * shape_.value_dim, shape_.value_dim,
                  pending_values_ + (pending + t) * shape_.value_dim);
      std::copy_n(inputs_.q + token_head * shape_.key_dim, shape_.key_dim,
                  queries.data() + t * shape_.key_dim);
    }
    OvqRead(shape_, inputs_.logit_scales[head_], slots_, Pending(pending + count), pending, count,
            queries, absl::MakeSpan(reads));
    for (int64_t t = 0; t < count; ++t) {
      const int64_t token_head = (row + t) * size_.num_heads + head_;
      std::copy_n(reads.data() + t * shape_.value_dim, shape_.value_dim,
                  out + token_head * shape_.value_dim);
    }
  }

  void Merge(int32_t* assignment) {
    const auto num_tokens = static_cast<size_t>(shape_.chunk_tokens);
    const absl::Span<int32_t> chosen =
        assignment == nullptr ? absl::Span<int32_t>() : absl::MakeSpan(assignment, num_tokens);
    OvqMerge(shape_, num_tokens_ - shape_.chunk_tokens, Pending(shape_.chunk_tokens), &slots_,
             chosen);
    std::fill_n(pending_keys_, shape_.chunk_tokens * shape_.key_dim, 0.0f);
    std::fill_n(pending_values_, shape_.chunk_tokens * shape_.value_dim, 0.0f);
  }

  const OvqShape& shape_;
  const OvqBatchSize& size_;
  const OvqInputs& inputs_;
  const int64_t sequence_;
  const int64_t head_;
  int64_t num_tokens_;
  float* keys_;
  float* values_;
  int32_t* counts_;
  float* pending_keys_;
  float* pending_values_;
  OvqSlots slots_;
};

}  // namespace

void OvqBatchCpu(const OvqShape& shape, const OvqBatchSize& size, const OvqInputs& inputs,
                 const OvqStates& states, float* out, int32_t* assignments) {
  for (int64_t sequence = 0; sequence < size.num_sequences; ++sequence) {
    if (inputs.offsets[sequence] == inputs.offsets[sequence + 1]) continue;
    for (int64_t head = 0; head < size.num_heads; ++head) {
      Head(shape, size, inputs, states, sequence, head).Run(out, assignments);
    }
  }
}

}  // namespace lethe
