// ModelState, ModelSnapshot: everything of a session that the model's layers carry from token to
// token, wherever they compute: on the CPU (cpu_model_state.h) or where the model's backend does
// (model_backend.h).
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
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/state/state_digest.h"
#include "memory/memory.h"
#include "memory/svdd/sv_memory.h"
#include "server/model/model.h"

namespace lethe {

class CpuModelState;

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

absl::Status CheckOverrides(const MemoryOverrides& overrides);
// The model's layers with the overrides.
std::vector<LayerConfig> LayersWith(const ModelConfig& config, const MemoryOverrides& overrides);

class ModelSnapshot {
 public:
  virtual ~ModelSnapshot() = default;
  int64_t num_tokens() const { return num_tokens_; }
  // False: of a replay (BankEdit::Snapshot), which only a replay can go on from.
  bool complete() const { return complete_; }
  virtual size_t state_bytes() const = 0;

 protected:
  int64_t num_tokens_ = 0;
  bool complete_ = true;
};

class ModelState {
 public:
  // Where the model's backend computes, or on the CPU.
  static absl::StatusOr<std::unique_ptr<ModelState>> Create(
      std::shared_ptr<const Model> model, const MemoryOverrides& overrides,
      size_t stored_input_bytes = kDefaultStoredInputBytes);
  virtual ~ModelState() = default;
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;

  absl::Status Evaluate(absl::Span<const int32_t> vocab_ids) {
    return EvaluateWithLogits(vocab_ids, {});
  }
  // The same, with the logits after every token: [vocab_ids.size()][vocab_size].
  virtual absl::Status EvaluateWithLogits(absl::Span<const int32_t> vocab_ids,
                                          absl::Span<float> logits) = 0;

  // Logits after the last token. FAILED_PRECONDITION when there is none.
  virtual absl::Status Logits(absl::Span<float> logits) const = 0;

  virtual std::shared_ptr<const ModelSnapshot> Snapshot() const = 0;
  virtual absl::Status Restore(const ModelSnapshot& snapshot) = 0;
  // Boundary states are worth keeping at multiples of it: a multiple of kChunkTokens.
  virtual int64_t snapshot_tokens() const { return kChunkTokens; }
  // False: WriteSnapshot is not to be asked for.
  virtual bool writes_snapshots() const { return true; }
  // A complete snapshot of this state as bytes, for a state that begins anew, with what it needs of the tokens from
  // `inputs_from` on: the rank of the snapshot that is read before it, or 0.
  virtual std::string WriteSnapshot(const ModelSnapshot& snapshot, int64_t inputs_from) const = 0;
  // In a state that has evaluated nothing: the snapshot, for Restore, which takes the last one that was read.
  virtual absl::StatusOr<std::shared_ptr<const ModelSnapshot>> ReadSnapshot(
      absl::string_view bytes) = 0;
  virtual std::unique_ptr<ModelState> Clone() const = 0;

  // Parts "options" ... of docs/state-digest.md, n included.
  virtual void AppendDigestParts(audit::StateParts* parts) const = 0;

  virtual int64_t num_tokens() const = 0;
  const Model& model() const { return *model_; }
  std::shared_ptr<const Model> shared_model() const { return model_; }
  const MemoryOverrides& overrides() const { return overrides_; }
  virtual size_t state_bytes() const = 0;
  virtual size_t stored_input_bytes() const { return 0; }  // held now; a cache beside the state

  // Itself where the layers compute on the CPU, else null: what a BankEdit replays.
  virtual const CpuModelState* AsCpu() const { return nullptr; }

  // Only for Fault::kGridNotRealigned: removed tokens leave masked slots in the memories, so that
  // chunks go on ending where they ended before.
  virtual absl::Status SkipSlots(int64_t count) = 0;

  // The support-vector memories, for certification.
  struct SvGroup {
    int64_t layer = 0;
    int64_t group = 0;
    const svdd::SvMemory* memory = nullptr;
  };
  virtual std::vector<SvGroup> SvGroups() const = 0;

 protected:
  ModelState(std::shared_ptr<const Model> model, const MemoryOverrides& overrides)
      : model_(std::move(model)), overrides_(overrides) {}
  // Parts "options" and "tokens".
  static void AppendOptions(const std::vector<LayerConfig>& layers, int64_t num_tokens,
                            audit::StateParts* parts);

  std::shared_ptr<const Model> model_;
  MemoryOverrides overrides_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_MODEL_STATE_H_
