// ModelState, ModelSnapshot: everything of a session that the model's layers carry from token to
// token.
//
// Equation:  docs/model-format.md section 2; a fold over the tokens in rank order.
// Shapes:    features [width] f32, logits [vocab_size] f32.
// Units:     ranks from 0.
// Requires:  vocab_ids in [0, vocab_size) (checked by LETHE_CHECK); Restore: a complete snapshot of
//            this object or of one that it was cloned or edited (bank_edit.h) from, the tokens before
//            which have not changed since, with snapshot.num_tokens() <= num_tokens().
// Rejects:   Create: INVALID_ARGUMENT that names the option and its range. ReadSnapshot: DATA_LOSS for bytes that
//            WriteSnapshot of such a state does not write, or that do not go on where the one before ended; then only
//            destruction may follow. Evaluate: INTERNAL when
//            an activation is not finite, and what a Memory rejects; then only Restore or
//            destruction may follow.
// Effects:   Evaluate advances the state. Restore leaves no byte that depends on a later token.
//            Features are overwritten when dropped; tails and windows are freed as they are.
// Numerics:  bits are a function of the token sequence alone, whatever the cut into calls.
// Threads:   compatible.
#ifndef LETHE_SERVER_MODEL_MODEL_STATE_H_
#define LETHE_SERVER_MODEL_MODEL_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/state/state_digest.h"
#include "kernels/base/wiped.h"
#include "memory/svdd/sv_memory.h"
#include "server/model/model.h"

namespace lethe {

class LayerState;
class LayerSnapshot;
class MemoryLayerState;
class Workspace;

// What a bank may store of a session's inputs for Forget (stored_inputs.h), unless a session says
// otherwise: at 6.7 kB a token, lethe-tiny's last 40,000 tokens.
inline constexpr size_t kDefaultStoredInputBytes = size_t{256} << 20;

// Overrides of the memories' options; unset keeps the model's value. Part of the state digest.
struct MemoryOverrides {
  std::optional<int64_t> ovq_slots;   // 2 ... 65536
  std::optional<double> sv_box_mass;  // 1 ... 2^20
  std::optional<double> sv_sigma;     // 2^-20 ... 2^20
  std::optional<double> sv_ridge;     // 1e-8 ... 1
};

class ModelSnapshot {
 public:
  ~ModelSnapshot();
  int64_t num_tokens() const { return num_tokens_; }
  // False: of a replay (BankEdit::Snapshot), which only a replay can go on from.
  bool complete() const { return complete_; }
  size_t state_bytes() const;

 private:
  friend class ModelState;
  friend class BankEdit;
  ModelSnapshot();
  int64_t num_tokens_ = 0;
  bool complete_ = true;
  std::vector<std::unique_ptr<LayerSnapshot>> layers_;
  WipedFloats features_;
};

class ModelState {
 public:
  static absl::StatusOr<std::unique_ptr<ModelState>> Create(
      std::shared_ptr<const Model> model, const MemoryOverrides& overrides,
      size_t stored_input_bytes = kDefaultStoredInputBytes);
  ~ModelState();

  absl::Status Evaluate(absl::Span<const int32_t> vocab_ids);
  // The same, with the logits after every token: [vocab_ids.size()][vocab_size].
  absl::Status EvaluateWithLogits(absl::Span<const int32_t> vocab_ids, absl::Span<float> logits);

  // Logits after the last token. FAILED_PRECONDITION when there is none.
  absl::Status Logits(absl::Span<float> logits) const;

  std::shared_ptr<const ModelSnapshot> Snapshot() const;
  absl::Status Restore(const ModelSnapshot& snapshot);
  // A complete snapshot of this state as bytes, for a state that begins anew, with what it needs of the tokens from
  // `inputs_from` on: the rank of the snapshot that is read before it, or 0.
  std::string WriteSnapshot(const ModelSnapshot& snapshot, int64_t inputs_from) const;
  // In a state that has evaluated nothing: the snapshot, for Restore, which takes the last one that was read.
  absl::StatusOr<std::shared_ptr<const ModelSnapshot>> ReadSnapshot(absl::string_view bytes);
  std::unique_ptr<ModelState> Clone() const;

  // Parts "options" ... of docs/state-digest.md, n included.
  void AppendDigestParts(audit::StateParts* parts) const;

  int64_t num_tokens() const { return num_tokens_; }
  const Model& model() const { return *model_; }
  const MemoryOverrides& overrides() const { return overrides_; }
  size_t state_bytes() const;
  size_t stored_input_bytes() const;  // held now; a cache beside the state

  // The layer at ModelConfig::bank; null when the model has none.
  const MemoryLayerState* bank() const;

  // Only for Fault::kGridNotRealigned: removed tokens leave masked slots in the memories, so that
  // chunks go on ending where they ended before.
  absl::Status SkipSlots(int64_t count);

  // The support-vector memories, for certification.
  struct SvGroup {
    int64_t layer = 0;
    int64_t group = 0;
    const svdd::SvMemory* memory = nullptr;
  };
  std::vector<SvGroup> SvGroups() const;

 private:
  friend class BankEdit;

  ModelState(std::shared_ptr<const Model> model, const MemoryOverrides& overrides,
             size_t stored_input_bytes);
  // The layer at rank 0.
  absl::StatusOr<std::unique_ptr<LayerState>> MakeLayer(size_t index) const;
  // The same model and options, without layers.
  std::unique_ptr<ModelState> EmptyCopy() const;
  void Embed(absl::Span<const int32_t> vocab_ids, absl::Span<float> x) const;
  // The end of a BankEdit: the bank lacks the last token, whose place is num_tokens - 1.
  absl::Status RepeatLast(int64_t num_tokens);
  std::string OptionBytes() const;
  MemoryLayerState* mutable_bank();
  absl::Status EvaluateBlock(absl::Span<const int32_t> vocab_ids, absl::Span<float> logits);

  std::shared_ptr<const Model> model_;
  MemoryOverrides overrides_;
  size_t max_stored_bytes_;
  std::shared_ptr<const std::vector<LayerConfig>> layer_configs_;  // the model's with the overrides
  int64_t num_tokens_ = 0;
  int64_t num_read_ = 0;  // rank of the last snapshot that was read
  std::vector<std::unique_ptr<LayerState>> layers_;
  WipedFloats features_;  // residual stream of the last token after the last layer, [width]
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_MODEL_STATE_H_
