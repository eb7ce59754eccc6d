// PalimpsaMemory: the state of a group of Palimpsa heads (kinds palimpsa_d and palimpsa_m of
// docs/model-format.md).
//
// Equation:  kernels/palimpsa/palimpsa.h. The memory returns s (M / (I + 1)) q; the residual D x,
//            the output norm and the gate are the caller's.
// Shapes:    q, k: [count][H][K]; v: the gated write v~ [count][H][V]; log_decay: [count][H];
//            precision: [count][H][V]; write_direction: empty. out: [count][H][V]. Without
//            metaplasticity precision is empty and I is not held.
// Units:     log_decay natural log, <= 0; read_scale is 1/sqrt(K) for palimpsa_d, 1 for palimpsa_m.
// Requires:  as memory.h.
// Rejects:   Create: INVALID_ARGUMENT that names the option and its range. Step: OUT_OF_RANGE when
//            a read is not finite; then only Restore (or destruction) may follow. Restore:
//            INVALID_ARGUMENT for another kind's or shape's snapshot.
// Effects:   as memory.h.
// Numerics:  f32; the state is, bit for bit, the fold of one-token steps in rank order. Cost O(H V
//            K) per token.
// Threads:   compatible.
#ifndef LETHE_MEMORY_PALIMPSA_PALIMPSA_MEMORY_H_
#define LETHE_MEMORY_PALIMPSA_PALIMPSA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/palimpsa/palimpsa.h"
#include "memory/memory.h"

namespace lethe {

struct PalimpsaOptions {
  PalimpsaShape shape;
  float read_scale = 1.0f;
  bool metaplasticity = true;  // false: b = 0, which is Mamba2
};

class PalimpsaMemory final : public Memory {
 public:
  static absl::StatusOr<std::unique_ptr<PalimpsaMemory>> Create(const PalimpsaOptions& options);

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
  explicit PalimpsaMemory(const PalimpsaOptions& options);
  PalimpsaMemory(const PalimpsaMemory&) = default;

  PalimpsaOptions options_;
  int64_t num_tokens_ = 0;
  std::vector<float> m_;      // [H][V][K]
  std::vector<float> i_bar_;  // [H][V][K], empty without metaplasticity
};

}  // namespace lethe

#endif  // LETHE_MEMORY_PALIMPSA_PALIMPSA_MEMORY_H_
