#include "server/device/batch_metadata.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace lethe {

absl::StatusOr<BatchMetadata> BatchMetadata::Create(Queue* queue, int64_t max_tokens,
                                                    int64_t max_sequences) {
  BatchMetadata metadata;
  metadata.queue_ = queue;
  metadata.max_tokens_ = max_tokens;
  metadata.max_sequences_ = max_sequences;
  size_t bytes = 0;
  const auto place = [&](int64_t count, size_t size) {
    const size_t at = bytes;
    bytes += (static_cast<size_t>(count) * size + 15) / 16 * 16;
    return at;
  };
  metadata.long_offsets_at_ = place(max_sequences + 1, sizeof(int64_t));
  metadata.ranks_at_ = place(max_sequences, sizeof(int64_t));
  metadata.offsets_at_ = place(max_sequences + 1, sizeof(int32_t));
  metadata.slots_at_ = place(max_sequences, sizeof(int32_t));
  metadata.vocab_ids_at_ = place(max_tokens, sizeof(int32_t));
  metadata.logit_rows_at_ = place(max_tokens, sizeof(int32_t));
  LETHE_ASSIGN_OR_RETURN(metadata.host_, HostArray<std::byte>::Zeros(queue, bytes));
  LETHE_ASSIGN_OR_RETURN(metadata.device_, DeviceArray<std::byte>::Zeros(queue, bytes));
  return metadata;
}

void BatchMetadata::Begin() {
  num_sequences_ = num_tokens_ = num_logit_rows_ = longest_ = most_tokens_after_ = 0;
  Host<int64_t>(long_offsets_at_)[0] = 0;
  Host<int32_t>(offsets_at_)[0] = 0;
}

void BatchMetadata::Add(int32_t slot, int64_t rank, absl::Span<const int32_t> vocab_ids) {
  const auto count = static_cast<int64_t>(vocab_ids.size());
  LETHE_CHECK(num_sequences_ < max_sequences_ && num_tokens_ + count <= max_tokens_);
  std::copy(vocab_ids.begin(), vocab_ids.end(), Host<int32_t>(vocab_ids_at_) + num_tokens_);
  Host<int64_t>(ranks_at_)[num_sequences_] = rank;
  Host<int32_t>(slots_at_)[num_sequences_] = slot;
  ++num_sequences_;
  num_tokens_ += count;
  longest_ = std::max(longest_, count);
  most_tokens_after_ = std::max(most_tokens_after_, rank + count);
  Host<int64_t>(long_offsets_at_)[num_sequences_] = num_tokens_;
  Host<int32_t>(offsets_at_)[num_sequences_] = static_cast<int32_t>(num_tokens_);
}

void BatchMetadata::AddLogitRow(int64_t row) {
  LETHE_CHECK(row < num_tokens_ && num_logit_rows_ < max_tokens_);
  Host<int32_t>(logit_rows_at_)[num_logit_rows_] = static_cast<int32_t>(row);
  ++num_logit_rows_;
}

void BatchMetadata::Pad(int64_t num_sequences) {
  LETHE_CHECK(num_tokens_ == num_sequences_ && num_sequences >= num_sequences_);
  LETHE_CHECK(num_sequences <= max_sequences_ && num_sequences <= max_tokens_);
  for (; num_sequences_ < num_sequences; ++num_sequences_) {
    Host<int64_t>(ranks_at_)[num_sequences_] = 0;
    Host<int32_t>(slots_at_)[num_sequences_] = 0;
    Host<int64_t>(long_offsets_at_)[num_sequences_ + 1] = num_tokens_;
    Host<int32_t>(offsets_at_)[num_sequences_ + 1] = static_cast<int32_t>(num_tokens_);
    Host<int32_t>(vocab_ids_at_)[num_sequences_] = 0;
  }
  num_tokens_ = num_sequences;
  if (num_logit_rows_ == 0) return;
  for (; num_logit_rows_ < num_sequences; ++num_logit_rows_) {
    Host<int32_t>(logit_rows_at_)[num_logit_rows_] = 0;
  }
}

absl::Status BatchMetadata::Upload() {
  return queue_->CopyToDevice(host_.data(), host_.size(), device_.data());
}

absl::Status BatchMetadata::Wipe() {
  explicit_bzero(host_.data(), host_.size());
  return queue_->SetZero(device_.data(), device_.size());
}

PackedSequences BatchMetadata::sequences() const {
  const std::byte* block = device_.data();
  return {num_sequences_,
          num_tokens_,
          longest_,
          At<int64_t>(block, long_offsets_at_),
          At<int32_t>(block, slots_at_),
          At<int64_t>(block, ranks_at_)};
}

}  // namespace lethe
