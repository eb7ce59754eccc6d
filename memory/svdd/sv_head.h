// SvMemory::Head, SvSnapshot: what SvMemory keeps of a head, and of a boundary; for memory/svdd/sv_*.cc alone.
//
// Equation:  sv_memory.h.
// Shapes:    per member.
// Units:     none.
// Requires:  none.
// Rejects:   per function.
// Effects:   none.
// Numerics:  sv_memory.h.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_SV_HEAD_H_
#define LETHE_MEMORY_SVDD_SV_HEAD_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "kernels/base/wiped.h"
#include "kernels/sv_read/sv_read.h"
#include "memory/svdd/canonical.h"
#include "memory/svdd/sv_edit.h"
#include "memory/svdd/sv_memory.h"

namespace lethe::svdd {

class SvSnapshot final : public MemorySnapshot {
 public:
  SvSnapshot(int64_t num_tokens, std::vector<std::shared_ptr<const Solution>> gates)
      : num_tokens_(num_tokens), gates_(std::move(gates)) {}
  int64_t num_tokens() const override { return num_tokens_; }
  size_t state_bytes() const override {
    size_t bytes = sizeof(*this);
    for (const auto& gate : gates_) bytes += gate->a.size() * (sizeof(double) + sizeof(Partition));
    return bytes;
  }
  void AppendTo(ByteWriter* out) const override;
  const std::vector<std::shared_ptr<const Solution>>& gates() const { return gates_; }

 private:
  int64_t num_tokens_;
  std::vector<std::shared_ptr<const Solution>> gates_;  // [H]
};

struct SvMemory::Head {
  Head(const Params& p, int64_t v_dim, float beta)
      : params(p),
        solver(p),
        gate(std::make_shared<Solution>()),
        key_dim(static_cast<size_t>(p.key_dim)),
        value_dim(static_cast<size_t>(v_dim)),
        scale(beta * std::sqrt(static_cast<float>(p.key_dim))) {}

  absl::Status Append(absl::Span<const float> key, absl::Span<const float> value);
  absl::Status Read(absl::Span<const float> q, absl::Span<float> out);
  absl::Status SolveGate();
  void SetGate(std::shared_ptr<const Solution> solution);
  void Truncate(int64_t num_tokens, const std::shared_ptr<const Solution>& solution);
  // Of an empty head, number `index` of num_heads: becomes what `edit` makes of `before`.
  absl::Status SetEdited(const Head& before, const SvEdit& edit, size_t index, size_t num_heads,
                         absl::Span<const Successor> successors, int64_t num_gated_after);

  absl::Span<const float> Key(size_t rank) const {
    return absl::MakeConstSpan(keys).subspan(rank * key_dim, key_dim);
  }
  absl::Span<const float> Value(size_t rank) const {
    return absl::MakeConstSpan(values).subspan(rank * value_dim, value_dim);
  }
  SvSupport support() const { return {support_keys, support_key_of, support_gate, support_values}; }
  size_t num_gated() const { return static_cast<size_t>(gate->num_keys); }
  size_t num_tokens() const { return keys.size() / key_dim; }

  Params params;
  CanonicalSolver solver;                // of the gated keys
  std::shared_ptr<const Solution> gate;  // its solution, shared with snapshots
  size_t key_dim;
  size_t value_dim;
  float scale;         // beta sqrt(K)
  WipedFloats keys;    // [num_tokens][K]
  WipedFloats values;  // [num_tokens][V]
  // The margin and error sets, contiguous in rank order, for reading; equal keys once.
  WipedFloats support_keys;
  std::vector<int32_t> support_key_of;  // [support]
  WipedFloats support_values;
  std::vector<float> support_gate;
  SvReadWorkspace workspace;  // of Read
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SV_HEAD_H_
