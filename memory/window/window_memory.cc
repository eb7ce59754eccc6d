#include "memory/window/window_memory.h"

#include <cmath>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

constexpr int64_t kHeadsMax = 64;
constexpr int64_t kDimMax = 4096;
constexpr int64_t kDimStep = 8;
constexpr int64_t kWindowMax = 1024;

struct WindowSnapshot : MemorySnapshot {
  WindowSnapshot(WindowAttentionState state_in, int64_t num_tokens_in)
      : state(std::move(state_in)), num_tokens_seen(num_tokens_in) {}
  int64_t num_tokens() const override { return num_tokens_seen; }
  size_t state_bytes() const override { return state.state_bytes(); }
  void AppendTo(ByteWriter* out) const override {
    out->I64(num_tokens_seen);
    state.AppendTo(out);
  }

  WindowAttentionState state;
  int64_t num_tokens_seen;
};

bool IsDim(int64_t dim) { return dim >= kDimStep && dim <= kDimMax && dim % kDimStep == 0; }

}  // namespace

absl::StatusOr<std::unique_ptr<WindowMemory>> WindowMemory::Create(
    const WindowAttentionShape& shape, absl::Span<const float> slopes) {
  if (shape.num_heads < 1 || shape.num_heads > kHeadsMax) {
    return absl::InvalidArgumentError("heads must be in 1 … 64");
  }
  if (!IsDim(shape.key_dim)) {
    return absl::InvalidArgumentError("key_dim must be a multiple of 8 in 8 … 4096");
  }
  if (!IsDim(shape.value_dim)) {
    return absl::InvalidArgumentError("value_dim must be a multiple of 8 in 8 … 4096");
  }
  if (shape.window < 1 || shape.window > kWindowMax) {
    return absl::InvalidArgumentError("window must be in 1 … 1024");
  }
  if (slopes.size() != static_cast<size_t>(shape.num_heads)) {
    return absl::InvalidArgumentError("alibi_slopes must hold one number per head");
  }
  for (const float slope : slopes) {
    if (!std::isfinite(slope)) return absl::InvalidArgumentError("alibi_slopes must be finite");
  }
  return std::unique_ptr<WindowMemory>(new WindowMemory(shape, slopes));
}

WindowMemory::WindowMemory(const WindowAttentionShape& shape, absl::Span<const float> slopes)
    : slopes_(slopes.begin(), slopes.end()), state_(shape) {}

absl::Status WindowMemory::Step(const MemoryInputs& inputs, int64_t count, absl::Span<float> out) {
  LETHE_CHECK(count >= 1);
  LETHE_CHECK(inputs.log_decay.empty() && inputs.precision.empty() &&
              inputs.write_direction.empty());
  WindowAttention(slopes_, inputs.q, inputs.k, inputs.v, count, &state_, out);
  num_tokens_ += count;
  return absl::OkStatus();
}

absl::Status WindowMemory::Write(const MemoryInputs& inputs, int64_t count) {
  LETHE_CHECK(count >= 1);
  LETHE_CHECK(inputs.log_decay.empty() && inputs.precision.empty() &&
              inputs.write_direction.empty());
  const WindowAttentionShape& shape = state_.shape();
  LETHE_CHECK(inputs.k.size() == static_cast<size_t>(count * shape.num_heads * shape.key_dim));
  state_.Append(inputs.k, inputs.v);
  num_tokens_ += count;
  return absl::OkStatus();
}

std::unique_ptr<MemorySnapshot> WindowMemory::Snapshot() const {
  return std::make_unique<WindowSnapshot>(state_, num_tokens_);
}

absl::Status WindowMemory::Restore(const MemorySnapshot& snapshot) {
  const auto* own = dynamic_cast<const WindowSnapshot*>(&snapshot);
  if (own == nullptr || own->state.shape() != state_.shape()) {
    return absl::InvalidArgumentError("snapshot is not of a window memory of this shape");
  }
  state_ = own->state;
  num_tokens_ = own->num_tokens_seen;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MemorySnapshot>> WindowMemory::ReadSnapshot(ByteReader* in) const {
  int64_t num_tokens = 0;
  WindowAttentionState state(state_.shape());
  LETHE_RETURN_IF_ERROR(in->I64(&num_tokens));
  LETHE_RETURN_IF_ERROR(state.Read(in));
  return std::make_unique<WindowSnapshot>(std::move(state), num_tokens);
}

std::unique_ptr<Memory> WindowMemory::Clone() const {
  return std::unique_ptr<Memory>(new WindowMemory(*this));
}

void WindowMemory::AppendCanonicalState(ByteWriter* out) const { state_.AppendTo(out); }

}  // namespace lethe
