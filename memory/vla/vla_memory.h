// VlaMemory: the state of a group of Variational Linear Attention heads (kind vla of
// docs/model-format.md).
//
// Equation:  kernels/vla/vla.h. With read_norm rms the memory returns S q / sqrt(mean((S q)^2) +
//            1e-12); the learned read_gain is the caller's.
// Shapes:    q, k: [count][H][K], both already elu + 1; v: [count][H][V]; write_direction: u =
//            l2(W_u k)/sqrt(K) [count][H][K], empty for variant rls; log_decay, precision: empty.
//            out: [count][H][V].
// Units:     none.
// Requires:  as memory.h.
// Rejects:   Create: INVALID_ARGUMENT that names the option and its range. Step: OUT_OF_RANGE when
//            a read is not finite; then only Restore (or destruction) may follow. Restore:
//            INVALID_ARGUMENT for another kind's or shape's snapshot.
// Effects:   as memory.h. The step count that drives the nudge is the token's rank and part of the
//            state.
// Numerics:  f32; the state is, bit for bit, the fold of one-token steps in rank order. Cost O(H K
//            (K + V)) per token.
// Threads:   compatible.
#ifndef LETHE_MEMORY_VLA_VLA_MEMORY_H_
#define LETHE_MEMORY_VLA_VLA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/vla/vla.h"
#include "memory/memory.h"

namespace lethe {

class VlaMemory final : public Memory {
 public:
  static absl::StatusOr<std::unique_ptr<VlaMemory>> Create(const VlaOptions& options);

  absl::Status Step(const MemoryInputs& inputs, int64_t count, absl::Span<float> out) override;
  absl::Status Write(const MemoryInputs& inputs, int64_t count) override;
  std::unique_ptr<MemorySnapshot> Snapshot() const override;
  absl::Status Restore(const MemorySnapshot& snapshot) override;
  absl::StatusOr<std::unique_ptr<MemorySnapshot>> ReadSnapshot(ByteReader* in) const override;
  std::unique_ptr<Memory> Clone() const override;
  void AppendCanonicalState(ByteWriter* out) const override;
  int64_t num_tokens() const override { return num_tokens_; }
  size_t state_bytes() const override;

 private:
  explicit VlaMemory(const VlaOptions& options);
  VlaMemory(const VlaMemory&) = default;

  VlaState State();

  VlaOptions options_;
  int64_t num_tokens_ = 0;
  int64_t step_count_ = 0;      // the rank that the nudge counts from
  std::vector<float> a_;        // [H][K][K]
  std::vector<float> s_;        // [H][V][K]
  std::vector<float> key_sum_;  // [H][K], empty unless the read norm is the paper's
};

}  // namespace lethe

#endif  // LETHE_MEMORY_VLA_VLA_MEMORY_H_
