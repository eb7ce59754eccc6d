// OvqMemory: the state of a group of Online Vector Quantised attention heads (kind ovq of
// docs/model-format.md).
//
// Equation:  kernels/ovq/ovq.h. The memory l2-normalises q and k itself. A token is read after it
//            joined its chunk; the chunk is merged inside Step or Write when num_tokens() reaches
//            a multiple of 64.
// Shapes:    q, k: [count][H][K], raw; v: [count][H][V]; log_decay, precision, write_direction:
//            empty. out: [count][H][V].
// Units:     beta multiplies sqrt(K) q^ k^, one per head.
// Requires:  as memory.h.
// Rejects:   Create: INVALID_ARGUMENT that names the option and its range. Step: OUT_OF_RANGE when
//            a read is not finite; then only Restore (or destruction) may follow. Restore:
//            INVALID_ARGUMENT for another kind's or shape's snapshot.
// Effects:   as memory.h. Snapshots copy the filled slots and the pending tokens only; at ranks 64j
//            no token is pending.
// Numerics:  f32; bits are a function of the token sequence alone. Cost O(H (n + 64)(K + V)) per
//            token, n filled slots.
// Threads:   compatible.
#ifndef LETHE_MEMORY_OVQ_OVQ_MEMORY_H_
#define LETHE_MEMORY_OVQ_OVQ_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/ovq/ovq.h"
#include "memory/memory.h"

namespace lethe {

struct OvqOptions {
  int64_t num_heads = 1;
  int64_t key_dim = 64;
  int64_t value_dim = 64;
  int64_t max_slots = 512;
  std::vector<float> beta;  // [H], finite
};

class OvqMemory final : public Memory {
 public:
  static absl::StatusOr<std::unique_ptr<OvqMemory>> Create(const OvqOptions& options);

  absl::Status Step(const MemoryInputs& inputs, int64_t count, absl::Span<float> out) override;
  absl::Status Write(const MemoryInputs& inputs, int64_t count) override;
  std::unique_ptr<MemorySnapshot> Snapshot() const override;
  absl::Status Restore(const MemorySnapshot& snapshot) override;
  absl::StatusOr<std::unique_ptr<MemorySnapshot>> ReadSnapshot(ByteReader* in) const override;
  std::unique_ptr<Memory> Clone() const override;
  void AppendCanonicalState(ByteWriter* out) const override;
  int64_t num_tokens() const override { return num_tokens_; }
  size_t state_bytes() const override;

  // For inspection: the filled slots of a head.
  const OvqSlots& slots(int64_t head) const { return slots_[static_cast<size_t>(head)]; }

 private:
  explicit OvqMemory(const OvqOptions& options);
  OvqMemory(const OvqMemory&) = default;

  OvqChunk Pending(int64_t head, int64_t size) const;
  // Step and Write; out empty: no reads.
  void Advance(const MemoryInputs& inputs, int64_t count, absl::Span<float> out);
  // For one head, tokens first .. first + count - 1 of the call, which do not cross a chunk's end:
  // takes them into the chunk, and then reads for them.
  void AppendToChunk(const MemoryInputs& inputs, int64_t head, int64_t first, int64_t count);
  void ReadInChunk(absl::Span<const float> q, int64_t head, int64_t first, int64_t count,
                   absl::Span<float> out) const;
  void MergePending();

  OvqShape shape() const { return {options_.key_dim, options_.value_dim, options_.max_slots}; }

  OvqOptions options_;
  int64_t num_tokens_ = 0;
  int64_t merged_tokens_ = 0;          // t of the growth law: tokens in the slots
  std::vector<OvqSlots> slots_;        // [H]
  std::vector<float> pending_keys_;    // [H][64][K], l2-normalised, zero beyond the pending tokens
  std::vector<float> pending_values_;  // [H][64][V]
};

}  // namespace lethe

#endif  // LETHE_MEMORY_OVQ_OVQ_MEMORY_H_
