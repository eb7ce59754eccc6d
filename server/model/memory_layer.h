// MemoryLayerState: the memory layer (docs/model-format.md 2.3), and what one that is a model's bank
// keeps so that a Forget reaches its state without the model.
//
// Equation:  x += W_o concat_g(group_g(rms_norm(x))).
// Shapes:    x: [count][width] f32, in and out; count 1 ... kBlockTokens.
// Units:     ranks from 0; stored_bytes in bytes.
// Requires:  as layer_state.h; the members marked so: a bank.
// Rejects:   as layer_state.h.
// Effects:   Forward of a bank stores what the streaming heads took (StoredInputs), and of the last
//            token x and its projections, so that its read can be repeated: caches, no part of the
//            digest.
// Numerics:  as layer_state.h.
// Threads:   compatible.
#ifndef LETHE_SERVER_MODEL_MEMORY_LAYER_H_
#define LETHE_SERVER_MODEL_MEMORY_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/check.h"
#include "kernels/base/wiped.h"
#include "server/model/layer_state.h"
#include "server/model/memory_group.h"
#include "server/model/stored_inputs.h"

namespace lethe {

// What the bank took of the last token from the layers below, so that its read can be repeated.
struct BankToken {
  WipedFloats x;                         // residual stream, [width]; empty: not known
  std::vector<WipedFloats> projections;  // per group q | k | v after convolution
};

// Where the local layers ended: what a bank holds of the last tokens.
struct BankEnd {
  std::vector<MemoryGroup::Tails> tails;  // per group
  BankToken last;
};

// What the bank's memories take of some tokens.
struct BankInputs {
  std::vector<StoredInputs::Row> rows;  // of the streaming groups, one a token
  std::vector<WipedFloats> keys;        // per group [count][H][K], of sv only
  std::vector<WipedFloats> values;      // per group [count][H][V], of sv only
};

class MemoryLayerState final : public LayerState {
 public:
  using Groups = std::vector<std::unique_ptr<MemoryGroup>>;

  MemoryLayerState(const MemoryWeights& weights, float norm_eps, Groups groups);
  // A bank that has taken no token; `stored_bytes` bounds its stored inputs.
  static std::unique_ptr<MemoryLayerState> MakeBank(const MemoryWeights& weights, float norm_eps,
                                                    Groups groups, size_t stored_bytes);

  absl::Status Forward(int64_t count, absl::Span<float> x, Workspace* workspace) override;
  std::unique_ptr<LayerSnapshot> Snapshot() const override;
  absl::Status Restore(const LayerSnapshot& snapshot) override;
  absl::StatusOr<std::unique_ptr<LayerSnapshot>> ReadSnapshot(ByteReader* in) const override;
  void AppendInputs(int64_t first, int64_t end, ByteWriter* out) const override;
  // A bank's stored inputs of these ranks are not known: evaluated again when they are needed.
  absl::Status ReadInputs(int64_t first, int64_t end, ByteReader* in) override;
  std::unique_ptr<LayerState> Clone() const override;
  void AppendDigestParts(const std::string& prefix, audit::StateParts* parts) const override;
  size_t state_bytes() const override;
  std::vector<const svdd::SvMemory*> SvMemories() const override;
  absl::Status SkipSlots(int64_t count) override;

  bool is_bank() const { return bank_ != nullptr; }
  const Groups& groups() const { return groups_; }

  // Of a bank. A snapshot of the streaming groups' memories is enough to replay from.
  static std::unique_ptr<LayerSnapshot> ReplaySnapshot(const Groups& groups);
  static absl::Status RestoreForReplay(const LayerSnapshot& snapshot, Groups* groups);
  const StoredInputs& stored() const { return CheckedBank().stored; }
  const BankToken& last() const { return CheckedBank().last; }
  BankEnd EmptyEnd() const;
  // What the memories would take of the next block behind `end`, which moves on (end->last only
  // where reads are wanted). The layer's own state is not touched.
  absl::Status Collect(absl::Span<const float> x, int64_t count, MemoryGroup::Reads reads,
                       BankEnd* end, RowMaker* maker, BankInputs* inputs,
                       Workspace* workspace) const;
  // This bank with other memories (Finish of a BankEdit): `stored` without the last token, whose
  // read RepeatLast gives.
  std::unique_ptr<MemoryLayerState> With(Groups groups, StoredInputs stored, BankToken last) const;
  absl::Status RepeatLast(absl::Span<float> x, Workspace* workspace);
  size_t stored_bytes() const { return is_bank() ? bank_->stored.state_bytes() : 0; }

 private:
  struct Bank {
    StoredInputs stored;
    BankToken last;
    RowMaker rows;
  };
  using NewRows = std::vector<std::shared_ptr<float>>;

  const Bank& CheckedBank() const {
    LETHE_CHECK(is_bank());
    return *bank_;
  }
  // None for a layer that is no bank.
  NewRows MakeRows(int64_t count);
  std::vector<float*> PartsOf(const NewRows& rows, size_t g) const;
  absl::Span<float> Norm(absl::Span<const float> x, Workspace* workspace) const;
  // Step of one group and its columns of the concatenation.
  absl::Status ApplyGroup(size_t g, absl::Span<const float> h, int64_t count,
                          const MemoryGroup::Projections& p, const NewRows& rows,
                          Workspace* workspace);
  // x += W_o all; keeps rows and last.
  void Conclude(int64_t count, NewRows rows, BankToken last, absl::Span<float> x,
                Workspace* workspace);

  const MemoryWeights* weights_;
  float norm_eps_;
  Groups groups_;
  // Where each group begins in the concatenated reads and in a stored row, and their ends.
  std::vector<int64_t> out_begin_ = {0};
  std::vector<int64_t> stored_begin_ = {0};
  std::unique_ptr<Bank> bank_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_MEMORY_LAYER_H_
