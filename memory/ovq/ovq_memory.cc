#include "memory/ovq/ovq_memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/memory/memory.h"

#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "kernels/math/math.h"
#include "memory/stream_checks.h"

namespace lethe {
namespace {

static_assert(kOvqChunkTokens == kChunkTokens, "OVQ's chunks are the grid's");

constexpr int64_t kSlotsMin = 2;
constexpr int64_t kSlotsMax = 65536;

// Holds the pending tokens of each head without the room for the rest of the chunk.
class OvqSnapshot final : public MemorySnapshot {
 public:
  OvqSnapshot(int64_t num_tokens, int64_t merged_tokens_in, std::vector<OvqSlots> slots_in,
              std::vector<float> pending_keys_in, std::vector<float> pending_values_in)
      : merged_tokens(merged_tokens_in),
        slots(std::move(slots_in)),
        pending_keys(std::move(pending_keys_in)),
        pending_values(std::move(pending_values_in)),
        num_tokens_(num_tokens) {}
  int64_t num_tokens() const override { return num_tokens_; }
  size_t state_bytes() const override {
    size_t num_words = pending_keys.size() + pending_values.size();
    for (const OvqSlots& head : slots) {
      num_words += head.keys.size() + head.values.size() + 2 * head.counts.size();
    }
    return num_words * sizeof(float);
  }
  void AppendTo(ByteWriter* out) const override {
    out->I64(num_tokens_);
    out->I64(merged_tokens);
    for (const OvqSlots& head : slots) {
      out->Array<float>(head.keys);
      out->Array<float>(head.values);
      out->Array<int32_t>(head.counts);
      out->Array<float>(head.log_counts);
    }
    out->Array<float>(pending_keys);
    out->Array<float>(pending_values);
  }

  const int64_t merged_tokens;
  const std::vector<OvqSlots> slots;
  const std::vector<float> pending_keys;    // [H][pending][K]
  const std::vector<float> pending_values;  // [H][pending][V]

 private:
  const int64_t num_tokens_;
};

// Overwrites before shrinking, so that no byte of a later state stays in the spare room.
template <typename T>
void Replace(const std::vector<T>& from, std::vector<T>* to) {
  std::fill(to->begin(), to->end(), T{});
  *to = from;
}

// The first num_floats of each head's [64][dim] block.
std::vector<float> PackPending(absl::Span<const float> blocks, size_t num_heads,
                               size_t num_floats) {
  std::vector<float> packed;
  packed.reserve(num_heads * num_floats);
  const size_t stride = blocks.size() / num_heads;
  for (size_t h = 0; h < num_heads; ++h) {
    const auto head = blocks.subspan(h * stride, num_floats);
    packed.insert(packed.end(), head.begin(), head.end());
  }
  return packed;
}

void UnpackPending(absl::Span<const float> packed, size_t num_heads, absl::Span<float> blocks) {
  std::fill(blocks.begin(), blocks.end(), 0.0f);
  const size_t num_floats = packed.size() / num_heads;
  const size_t stride = blocks.size() / num_heads;
  for (size_t h = 0; h < num_heads; ++h) {
    const auto head = packed.subspan(h * num_floats, num_floats);
    std::copy(head.begin(), head.end(), blocks.begin() + static_cast<ptrdiff_t>(h * stride));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<OvqMemory>> OvqMemory::Create(const OvqOptions& options) {
  LETHE_RETURN_IF_ERROR(CheckHeadOptions(options.num_heads, options.key_dim, options.value_dim));
  LETHE_RETURN_IF_ERROR(CheckOption("slots", options.max_slots, {kSlotsMin, kSlotsMax}));
  if (options.beta.size() != static_cast<size_t>(options.num_heads)) {
    return absl::InvalidArgumentError("beta must have one element per head");
  }
  for (float beta : options.beta) {
    if (!std::isfinite(beta * static_cast<float>(options.key_dim))) {
      return absl::InvalidArgumentError("beta must be finite, and beta * key_dim within f32");
    }
  }
  return absl::WrapUnique(new OvqMemory(options));
}

OvqMemory::OvqMemory(const OvqOptions& options)
    : options_(options),
      slots_(static_cast<size_t>(options.num_heads)),
      pending_keys_(static_cast<size_t>(options.num_heads * kChunkTokens * options.key_dim)),
      pending_values_(static_cast<size_t>(options.num_heads * kChunkTokens * options.value_dim)) {}

OvqChunk OvqMemory::Pending(int64_t head, int64_t size) const {
  const auto num_keys = static_cast<size_t>(kChunkTokens * options_.key_dim);
  const auto num_values = static_cast<size_t>(kChunkTokens * options_.value_dim);
  const auto h = static_cast<size_t>(head);
  return {absl::MakeConstSpan(pending_keys_).subspan(h * num_keys, num_keys),
          absl::MakeConstSpan(pending_values_).subspan(h * num_values, num_values), size};
}

absl::Status OvqMemory::Step(const MemoryInputs& inputs, int64_t count, absl::Span<float> out) {
  LETHE_CHECK(inputs.q.size() == inputs.k.size() && out.size() == inputs.v.size());
  Advance(inputs, count, out);
  return CheckReads("ovq", out);
}

absl::Status OvqMemory::Write(const MemoryInputs& inputs, int64_t count) {
  Advance(inputs, count, {});
  return absl::OkStatus();
}

void OvqMemory::Advance(const MemoryInputs& inputs, int64_t count, absl::Span<float> out) {
  const auto num_keys = static_cast<size_t>(count * options_.num_heads * options_.key_dim);
  const auto num_values = static_cast<size_t>(count * options_.num_heads * options_.value_dim);
  LETHE_CHECK(count >= 1 && inputs.log_decay.empty() && inputs.precision.empty());
  LETHE_CHECK(inputs.write_direction.empty());
  LETHE_CHECK(inputs.k.size() == num_keys && inputs.v.size() == num_values);
  for (int64_t done = 0; done < count;) {
    const int64_t pending = num_tokens_ % kChunkTokens;
    const int64_t size = std::min(count - done, kChunkTokens - pending);
    for (int64_t h = 0; h < options_.num_heads; ++h) {
      AppendToChunk(inputs, h, done, size);
      if (!out.empty()) ReadInChunk(inputs.q, h, done, size, out);
    }
    num_tokens_ += size;
    done += size;
    if (num_tokens_ % kChunkTokens == 0) MergePending();
  }
}

void OvqMemory::AppendToChunk(const MemoryInputs& inputs, int64_t head, int64_t first,
                              int64_t count) {
  const auto key_dim = static_cast<size_t>(options_.key_dim);
  const auto value_dim = static_cast<size_t>(options_.value_dim);
  const auto num_heads = static_cast<size_t>(options_.num_heads);
  const auto h = static_cast<size_t>(head);
  const auto num_tokens = static_cast<size_t>(count);
  const auto block = static_cast<size_t>(head * kChunkTokens + num_tokens_ % kChunkTokens);
  for (size_t t = 0; t < num_tokens; ++t) {
    const size_t token_head = (static_cast<size_t>(first) + t) * num_heads + h;
    L2Normalize(inputs.k.subspan(token_head * key_dim, key_dim),
                absl::MakeSpan(pending_keys_).subspan((block + t) * key_dim, key_dim));
    const auto value = inputs.v.subspan(token_head * value_dim, value_dim);
    std::copy(value.begin(), value.end(),
              pending_values_.begin() + static_cast<ptrdiff_t>((block + t) * value_dim));
  }
}

void OvqMemory::ReadInChunk(absl::Span<const float> q, int64_t head, int64_t first, int64_t count,
                            absl::Span<float> out) const {
  const auto key_dim = static_cast<size_t>(options_.key_dim);
  const auto value_dim = static_cast<size_t>(options_.value_dim);
  const auto num_heads = static_cast<size_t>(options_.num_heads);
  const auto h = static_cast<size_t>(head);
  const auto num_tokens = static_cast<size_t>(count);
  const int64_t pending = num_tokens_ % kChunkTokens;
  std::vector<float> queries(num_tokens * key_dim);
  std::vector<float> reads(num_tokens * value_dim);
  for (size_t t = 0; t < num_tokens; ++t) {
    const size_t token_head = (static_cast<size_t>(first) + t) * num_heads + h;
    L2Normalize(q.subspan(token_head * key_dim, key_dim),
                absl::MakeSpan(queries).subspan(t * key_dim, key_dim));
  }
  const float logit_scale = options_.beta[h] * std::sqrt(static_cast<float>(options_.key_dim));
  OvqRead(shape(), logit_scale, slots_[h], Pending(head, pending + count), pending, count, queries,
          absl::MakeSpan(reads));
  for (size_t t = 0; t < num_tokens; ++t) {
    const size_t token_head = (static_cast<size_t>(first) + t) * num_heads + h;
    const auto read = absl::MakeConstSpan(reads).subspan(t * value_dim, value_dim);
    std::copy(read.begin(), read.end(),
              out.begin() + static_cast<ptrdiff_t>(token_head * value_dim));
  }
}

void OvqMemory::MergePending() {
  for (int64_t h = 0; h < options_.num_heads; ++h) {
    OvqMerge(shape(), merged_tokens_, Pending(h, kChunkTokens), &slots_[static_cast<size_t>(h)],
             {});
  }
  merged_tokens_ += kChunkTokens;
  std::fill(pending_keys_.begin(), pending_keys_.end(), 0.0f);
  std::fill(pending_values_.begin(), pending_values_.end(), 0.0f);
}

std::unique_ptr<MemorySnapshot> OvqMemory::Snapshot() const {
  const auto pending = static_cast<size_t>(num_tokens_ % kChunkTokens);
  const size_t num_heads = slots_.size();
  return std::make_unique<OvqSnapshot>(
      num_tokens_, merged_tokens_, slots_,
      PackPending(pending_keys_, num_heads, pending * static_cast<size_t>(options_.key_dim)),
      PackPending(pending_values_, num_heads, pending * static_cast<size_t>(options_.value_dim)));
}

absl::Status OvqMemory::Restore(const MemorySnapshot& snapshot) {
  LETHE_ASSIGN_OR_RETURN(const OvqSnapshot* saved, SnapshotAs<OvqSnapshot>("ovq", snapshot));
  const auto pending = static_cast<size_t>(saved->num_tokens() % kChunkTokens) * slots_.size();
  bool same_shape =
      saved->slots.size() == slots_.size() &&
      saved->pending_keys.size() == pending * static_cast<size_t>(options_.key_dim) &&
      saved->pending_values.size() == pending * static_cast<size_t>(options_.value_dim);
  for (const OvqSlots& head : saved->slots) {
    const size_t num_slots = head.counts.size();
    same_shape = same_shape && static_cast<int64_t>(num_slots) < options_.max_slots &&
                 head.keys.size() == num_slots * static_cast<size_t>(options_.key_dim) &&
                 head.values.size() == num_slots * static_cast<size_t>(options_.value_dim);
  }
  if (!same_shape) {
    return absl::InvalidArgumentError("snapshot is of an ovq memory of another shape");
  }
  for (size_t h = 0; h < slots_.size(); ++h) {
    Replace(saved->slots[h].keys, &slots_[h].keys);
    Replace(saved->slots[h].values, &slots_[h].values);
    Replace(saved->slots[h].counts, &slots_[h].counts);
    Replace(saved->slots[h].log_counts, &slots_[h].log_counts);
  }
  UnpackPending(saved->pending_keys, slots_.size(), absl::MakeSpan(pending_keys_));
  UnpackPending(saved->pending_values, slots_.size(), absl::MakeSpan(pending_values_));
  num_tokens_ = saved->num_tokens();
  if (!FaultActive(Fault::kOvqTokenCountKept)) merged_tokens_ = saved->merged_tokens;
  return absl::OkStatus();
}

// What the bytes say is checked by Restore.
absl::StatusOr<std::unique_ptr<MemorySnapshot>> OvqMemory::ReadSnapshot(ByteReader* in) const {
  int64_t num_tokens = 0;
  int64_t merged_tokens = 0;
  std::vector<OvqSlots> slots(slots_.size());
  std::vector<float> pending_keys;
  std::vector<float> pending_values;
  LETHE_RETURN_IF_ERROR(in->I64(&num_tokens));
  LETHE_RETURN_IF_ERROR(in->I64(&merged_tokens));
  for (OvqSlots& head : slots) {
    LETHE_RETURN_IF_ERROR(in->Array(&head.keys));
    LETHE_RETURN_IF_ERROR(in->Array(&head.values));
    LETHE_RETURN_IF_ERROR(in->Array(&head.counts));
    LETHE_RETURN_IF_ERROR(in->Array(&head.log_counts));
    if (head.log_counts.size() != head.counts.size()) {
      return absl::DataLossError("ovq: a snapshot of another shape");
    }
  }
  LETHE_RETURN_IF_ERROR(in->Array(&pending_keys));
  LETHE_RETURN_IF_ERROR(in->Array(&pending_values));
  return std::make_unique<OvqSnapshot>(num_tokens, merged_tokens, std::move(slots),
                                       std::move(pending_keys), std::move(pending_values));
}

std::unique_ptr<Memory> OvqMemory::Clone() const { return absl::WrapUnique(new OvqMemory(*this)); }

void OvqMemory::AppendCanonicalState(ByteWriter* out) const {
  out->String("ovq");
  out->I64(num_tokens_);
  out->I64(merged_tokens_);
  for (const OvqSlots& head : slots_) {
    out->Array<float>(head.keys);
    out->Array<float>(head.values);
    out->Array<int32_t>(head.counts);
  }
  const auto key_dim = static_cast<size_t>(options_.key_dim);
  const auto value_dim = static_cast<size_t>(options_.value_dim);
  const auto pending = static_cast<size_t>(num_tokens_ % kChunkTokens);
  for (size_t rank = 0; rank < pending; ++rank) {
    for (size_t h = 0; h < slots_.size(); ++h) {
      const size_t index = h * static_cast<size_t>(kChunkTokens) + rank;
      out->Array<float>(absl::MakeConstSpan(pending_keys_).subspan(index * key_dim, key_dim));
      out->Array<float>(absl::MakeConstSpan(pending_values_).subspan(index * value_dim, value_dim));
    }
  }
}

size_t OvqMemory::state_bytes() const {
  size_t num_words = pending_keys_.capacity() + pending_values_.capacity();
  for (const OvqSlots& head : slots_) {
    num_words += head.keys.capacity() + head.values.capacity() + head.counts.capacity() +
                 head.log_counts.capacity();
  }
  return num_words * sizeof(float);
}

}  // namespace lethe
