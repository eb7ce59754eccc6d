// MemoryGroup: one group of heads of a memory layer: projections, convolutions, gates and the
// Memory behind them.
//
// Equation:  docs/model-format.md 2.3.
// Shapes:    h: [count][width], out: [count][H][V] f32.
// Units:     ranks from 0.
// Requires:  config and weights outlive the object; workspace buffers 0 ... 7 are free.
// Rejects:   Create: INVALID_ARGUMENT that names the option. Forward: INTERNAL when an activation
//            or a read is not finite, and what the Memory rejects; then only Restore or
//            destruction.
// Effects:   Forward advances convolution tails and memory by count tokens.
// Numerics:  as layer_state.h.
// Threads:   compatible.
#ifndef LETHE_SERVER_MODEL_MEMORY_GROUP_H_
#define LETHE_SERVER_MODEL_MEMORY_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "audit/state/input_tree.h"
#include "audit/state/state_digest.h"
#include "kernels/causal_conv/causal_conv.h"
#include "memory/memory.h"
#include "memory/svdd/sv_memory.h"
#include "server/model/config.h"
#include "server/model/weights.h"
#include "server/model/workspace.h"

namespace lethe {

// The Memory of a group, empty. Sizes and options from the config, per-head parameters from the
// weights.
absl::StatusOr<std::unique_ptr<Memory>> MakeMemory(const GroupConfig& config,
                                                   const GroupWeights& weights);

class MemoryGroup {
 public:
  struct Tails {
    CausalConvState q, k, v;
  };
  struct Snapshot {
    Tails tails;
    std::unique_ptr<MemorySnapshot> memory;
  };

  static absl::StatusOr<std::unique_ptr<MemoryGroup>> Create(const GroupConfig& config,
                                                             const GroupWeights& weights,
                                                             float norm_eps);

  absl::Status Forward(absl::Span<const float> h, int64_t count, absl::Span<float> out,
                       Workspace* workspace);
  Snapshot TakeSnapshot() const;
  absl::Status Restore(const Snapshot& snapshot);
  std::unique_ptr<MemoryGroup> Clone() const;
  void AppendDigestParts(const std::string& prefix, audit::StateParts* parts) const;
  absl::Status SkipSlots(int64_t count);

  int64_t out_columns() const { return config_->heads * config_->value_dim; }
  const svdd::SvMemory* sv_memory() const { return sv_memory_; }
  size_t state_bytes() const;
  static size_t SnapshotBytes(const Snapshot& snapshot);

 private:
  MemoryGroup(const GroupConfig& config, const GroupWeights& weights, float norm_eps,
              std::unique_ptr<Memory> memory);

  // q, k, v after projection and convolution, changed in place into what the memory takes.
  struct Projections {
    absl::Span<float> q, k, v;
  };
  absl::Status StepPalimpsa(absl::Span<const float> h, int64_t count, const Projections& p,
                            absl::Span<float> out, Workspace* workspace);
  absl::Status StepVla(int64_t count, const Projections& p, absl::Span<float> out,
                       Workspace* workspace);
  absl::Status StepPlain(int64_t count, const Projections& p, absl::Span<float> out);
  void UpdateTrees();

  const GroupConfig* config_;
  const GroupWeights* weights_;
  float norm_eps_;
  Tails tails_;
  std::unique_ptr<Memory> memory_;
  svdd::SvMemory* sv_memory_ = nullptr;      // memory_ when it is of kind sv
  std::vector<audit::InputTree> key_trees_;  // per sv head, over its gated keys and values
};

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_MEMORY_GROUP_H_
