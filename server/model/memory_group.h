// MemoryGroup: one group of heads of a memory layer: projections, convolutions, gates and the
// Memory behind them.
//
// Equation:  docs/model-format.md 2.3: Project (projections and convolutions), Prepare (the kind's
//            own maps and gates), the Memory's Step, Finish (output maps). A stored row is what the
//            Memory took of one token, without q: k, v, then log_decay, precision and
//            write_direction where the kind has them.
// Shapes:    h: [count][width], out: [count][H][V] f32; a stored row [stored_columns()] f32.
// Units:     ranks from 0.
// Requires:  config and weights outlive the object; workspace buffers 0 ... 7 are free and not used
//            between Project and Finish.
// Rejects:   Create: INVALID_ARGUMENT that names the option. Project: INTERNAL when an activation
//            is not finite. Apply: INTERNAL when a read is not finite, and what the Memory rejects;
//            then only Restore or destruction.
// Effects:   Project moves the given tails on; Apply and Replay advance the memory by count tokens.
// Numerics:  as layer_state.h. Replay of the rows that Store wrote gives the memory the bits that
//            Apply gave it.
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
  // q, k, v of a block after projection and convolution, in the workspace; Prepare changes them in
  // place. Where nothing will be read q is empty and its tail does not move.
  struct Projections {
    absl::Span<float> q, k, v;
  };
  enum class Reads { kWanted, kNotWanted };

  static absl::StatusOr<std::unique_ptr<MemoryGroup>> Create(const GroupConfig& config,
                                                             const GroupWeights& weights,
                                                             float norm_eps);

  // Tails of rank 0.
  Tails EmptyTails() const;
  absl::StatusOr<Projections> Project(absl::Span<const float> h, int64_t count, Reads reads,
                                      Tails* tails, Workspace* workspace) const;
  MemoryInputs Prepare(absl::Span<const float> h, int64_t count, const Projections& p,
                       Workspace* workspace) const;
  // Prepare, Step, Finish. `stored`: empty, or one row for each token, which Store fills.
  absl::Status Apply(absl::Span<const float> h, int64_t count, const Projections& p,
                     absl::Span<float* const> stored, absl::Span<float> out, Workspace* workspace);

  // 0 for sv, which holds its keys and values itself.
  int64_t stored_columns() const;
  void Store(const MemoryInputs& inputs, absl::Span<float* const> rows) const;
  absl::Status Replay(absl::Span<const float* const> rows, Workspace* workspace);
  // Of an sv group: keys and values as Prepare leaves them, not read.
  absl::Status Write(const MemoryInputs& inputs, int64_t count);

  Snapshot TakeSnapshot() const;
  // Of the memory alone, for a ladder of a bank; null for sv.
  std::unique_ptr<MemorySnapshot> TakeMemorySnapshot() const;
  absl::Status Restore(const Snapshot& snapshot);
  // layer_state.h, of this group.
  static void AppendSnapshot(const Snapshot& snapshot, ByteWriter* out);
  absl::StatusOr<Snapshot> ReadSnapshot(ByteReader* in) const;
  void AppendInputs(int64_t first, int64_t end, ByteWriter* out) const;
  absl::Status ReadInputs(ByteReader* in);
  absl::Status RestoreMemory(const MemorySnapshot& snapshot);
  std::unique_ptr<MemoryGroup> Clone() const;
  // This sv group after a change of its tokens (svdd::SvEdit).
  absl::StatusOr<std::unique_ptr<MemoryGroup>> Edited(const svdd::SvEdit& edit) const;
  void AppendDigestParts(const std::string& prefix, audit::StateParts* parts) const;
  // The same without the convolutions' tails.
  void AppendMemoryParts(const std::string& prefix, audit::StateParts* parts) const;
  absl::Status SkipSlots(int64_t count);

  Tails* mutable_tails() { return &tails_; }
  const GroupConfig& config() const { return *config_; }
  int64_t key_columns() const { return config_->heads * config_->key_dim; }
  int64_t out_columns() const { return config_->heads * config_->value_dim; }
  const svdd::SvMemory* sv_memory() const { return sv_memory_; }
  size_t state_bytes() const;
  static size_t SnapshotBytes(const Snapshot& snapshot);

 private:
  MemoryGroup(const GroupConfig& config, const GroupWeights& weights, float norm_eps,
              std::unique_ptr<Memory> memory);

  MemoryInputs PreparePalimpsa(absl::Span<const float> h, int64_t count, const Projections& p,
                               Workspace* workspace) const;
  MemoryInputs PrepareVla(int64_t count, const Projections& p, Workspace* workspace) const;
  void FinishPalimpsa(absl::Span<const float> h, int64_t count, const Projections& p,
                      absl::Span<float> out, Workspace* workspace) const;
  void Finish(absl::Span<const float> h, int64_t count, const Projections& p, absl::Span<float> out,
              Workspace* workspace) const;
  bool is_palimpsa() const;
  // A memory's own refusals are this server's numerical faults, not the caller's.
  static absl::Status AsInternal(const absl::Status& status) {
    return status.ok() ? status : absl::InternalError(status.message());
  }
  void UpdateTrees();
  void CarryTrees(const MemoryGroup& before, const svdd::SvEdit& edit);
  // The leaf of a gated token.
  audit::Sha256Digest GatedLeaf(const svdd::SvHeadView& view, uint64_t rank) const;

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
