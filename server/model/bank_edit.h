// BankEdit, PlanBankEdit: the state of a shorter history in a model with a bank (ModelConfig::bank),
// reached without evaluating the model.
//
// Equation:  design.md 2.1. What the bank takes of a token is a function of the last W =
//            local_receptive_field tokens, so a removal changes it for at most W - 1 tokens behind
//            each gap: the local layers evaluate those again. Support-vector heads make that one
//            set change (svdd::SvEdit); streaming heads step through what they stored, from a
//            snapshot, on the new ranks; the last token is read again.
// Shapes:    removed: ascending distinct ranks before; history: the vocab_ids after.
// Units:     ranks after, unless said otherwise; tokens.
// Requires:  before.model() has a bank and before stands behind its last token without an error;
//            history is before's history without the removed ranks, not empty. Restore: a snapshot
//            of `before` or of an edit, of unchanged ranks. Calls in this order: Refresh, then
//            Restore and Replay as often as wanted, at last to history.size() - 1, then Finish.
//            `before` outlives the edit.
// Rejects:   what a Forward, a Write and SvMemory::Edited reject, and what the checkpoint says.
// Effects:   none on `before`.
// Numerics:  the state's digest and logits are, bit for bit, those of evaluating `history`. Only the
//            last token is read: where evaluating would have met a number beyond f32 in an earlier
//            read, an edit may succeed. Snapshots of `before` hold for the state up to the first
//            removed rank.
// Threads:   compatible.
#ifndef LETHE_SERVER_MODEL_BANK_EDIT_H_
#define LETHE_SERVER_MODEL_BANK_EDIT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/wiped.h"
#include "server/model/cpu_model_state.h"
#include "server/model/memory_layer.h"

namespace lethe {

// Half-open, first < end.
struct RankRun {
  int64_t first = 0;
  int64_t end = 0;
  bool operator==(const RankRun& other) const = default;
};

struct BankEditPlan {
  std::vector<RankRun> changed;    // what the bank takes of these tokens is new
  std::vector<RankRun> evaluated;  // these the local layers evaluate: changed, dropped from the
                                   // stored inputs and to be replayed, and the last where unknown
  int64_t num_dropped = 0;         // of them, tokens only because they were dropped
  int64_t num_local = 0;           // tokens evaluated by the local layers, warm-up included
};

// `replay_from`: the lowest rank of a snapshot that Restore will be given.
BankEditPlan PlanBankEdit(const CpuModelState& before, absl::Span<const int64_t> removed,
                          int64_t replay_from);

class BankEdit {
 public:
  using Checkpoint = std::function<absl::Status()>;

  // `plan`: of these ranks. All are kept by reference.
  BankEdit(const CpuModelState& before, const BankEditPlan& plan, absl::Span<const int64_t> removed,
           absl::Span<const int32_t> history);
  ~BankEdit();

  absl::Status Refresh(const Checkpoint& checkpoint);
  absl::Status Restore(const ModelSnapshot& snapshot);
  // The streaming memories' rank.
  int64_t rank() const { return rank_; }
  // On to `end`, at most to the next boundary.
  absl::Status Replay(int64_t end);
  // Only for Fault::kGridNotRealigned: the streaming memories take `count` masked slots.
  absl::Status SkipSlots(int64_t count);
  // For a later replay: without local layers and support-vector gates.
  std::shared_ptr<const ModelSnapshot> Snapshot() const;
  // The checkpoint is asked before each support-vector group.
  absl::StatusOr<std::unique_ptr<ModelState>> Finish(const Checkpoint& checkpoint);

 private:
  const MemoryLayerState& bank_before() const;
  int64_t num_after() const { return static_cast<int64_t>(history_.size()); }
  int64_t RankBefore(int64_t rank) const;
  bool IsChanged(int64_t rank) const;
  absl::Status EvaluateStretch(const RankRun& run, const Checkpoint& checkpoint);
  void Take(int64_t first, int64_t wanted, const BankInputs& inputs);
  absl::StatusOr<MemoryLayerState::Groups> FinishGroups(const Checkpoint& checkpoint);
  absl::StatusOr<std::unique_ptr<MemoryGroup>> EditSv(size_t group);

  const CpuModelState& before_;
  absl::Span<const int64_t> removed_;
  absl::Span<const int32_t> history_;
  const BankEditPlan& plan_;
  bool refreshed_ = false;
  StoredInputs stored_;  // at the new ranks
  RowMaker row_maker_;
  MemoryLayerState::Groups streaming_;  // null for sv
  int64_t rank_ = 0;
  // Of the changed tokens but the last, ascending: ranks before, and their sv keys and values.
  std::vector<int64_t> replaced_;
  BankInputs replaced_inputs_;
  // The local layers behind the last token, where a stretch ended there.
  std::vector<std::unique_ptr<LayerState>> local_layers_;
  BankEnd end_;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_BANK_EDIT_H_
