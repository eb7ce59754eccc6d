// WindowMemory: the memory of kind "window": softmax attention over the last `window` tokens.
//
// Equation:  docs/model-format.md 2.1, kernels/window_attention/window_attention.h.
// Shapes:    as memory/memory.h; slopes: [H]. Uses q, k, v; the other inputs must be empty.
// Units:     slope per token of distance.
// Requires:  memory/memory.h's.
// Rejects:   Create: INVALID_ARGUMENT for a value outside docs/model-format.md's range, naming the
//            key; Restore: INVALID_ARGUMENT for a snapshot of another kind or shape.
// Effects:   as memory/memory.h.
// Numerics:  kernels/window_attention's; canonical state: the present rows of K, then of V, oldest
//            first.
// Threads:   compatible.
#ifndef LETHE_MEMORY_WINDOW_WINDOW_MEMORY_H_
#define LETHE_MEMORY_WINDOW_WINDOW_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/window_attention/window_attention.h"
#include "memory/memory.h"

namespace lethe {

class WindowMemory : public Memory {
 public:
  static absl::StatusOr<std::unique_ptr<WindowMemory>> Create(const WindowAttentionShape& shape,
                                                              absl::Span<const float> slopes);

  absl::Status Step(const MemoryInputs& inputs, int64_t count, absl::Span<float> out) override;
  absl::Status Write(const MemoryInputs& inputs, int64_t count) override;
  std::unique_ptr<MemorySnapshot> Snapshot() const override;
  absl::Status Restore(const MemorySnapshot& snapshot) override;
  absl::StatusOr<std::unique_ptr<MemorySnapshot>> ReadSnapshot(ByteReader* in) const override;
  std::unique_ptr<Memory> Clone() const override;
  void AppendCanonicalState(ByteWriter* out) const override;
  int64_t num_tokens() const override { return num_tokens_; }
  size_t state_bytes() const override { return state_.state_bytes(); }

 private:
  WindowMemory(const WindowAttentionShape& shape, absl::Span<const float> slopes);

  std::vector<float> slopes_;
  WindowAttentionState state_;
  int64_t num_tokens_ = 0;
};

}  // namespace lethe

#endif  // LETHE_MEMORY_WINDOW_WINDOW_MEMORY_H_
