// CpuModelState, CpuModelSnapshot: a ModelState whose layers compute on the CPU, on the caller's thread.
//
// Equation:  model_state.h.
// Shapes:    features [width] f32.
// Units:     model_state.h.
// Requires:  model_state.h.
// Rejects:   model_state.h.
// Effects:   Evaluate advances the state. Restore leaves no byte that depends on a later token.
//            Features are overwritten when dropped; tails and windows are freed as they are.
// Numerics:  model_state.h.
// Threads:   compatible.
#ifndef LETHE_SERVER_MODEL_CPU_MODEL_STATE_H_
#define LETHE_SERVER_MODEL_CPU_MODEL_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/wiped.h"
#include "server/model/model_state.h"

namespace lethe {

class LayerState;
class LayerSnapshot;
class MemoryLayerState;
class Workspace;

class CpuModelSnapshot final : public ModelSnapshot {
 public:
  ~CpuModelSnapshot() override;
  size_t state_bytes() const override;

 private:
  friend class CpuModelState;
  friend class BankEdit;
  CpuModelSnapshot();
  std::vector<std::unique_ptr<LayerSnapshot>> layers_;
  WipedFloats features_;
};

class CpuModelState final : public ModelState {
 public:
  static absl::StatusOr<std::unique_ptr<CpuModelState>> Create(
      std::shared_ptr<const Model> model, const MemoryOverrides& overrides,
      size_t stored_input_bytes = kDefaultStoredInputBytes);
  ~CpuModelState() override;

  absl::Status EvaluateWithLogits(absl::Span<const int32_t> vocab_ids,
                                  absl::Span<float> logits) override;
  absl::Status Logits(absl::Span<float> logits) const override;
  std::shared_ptr<const ModelSnapshot> Snapshot() const override;
  absl::Status Restore(const ModelSnapshot& snapshot) override;
  std::string WriteSnapshot(const ModelSnapshot& snapshot, int64_t inputs_from) const override;
  absl::StatusOr<std::shared_ptr<const ModelSnapshot>> ReadSnapshot(
      absl::string_view bytes) override;
  std::unique_ptr<ModelState> Clone() const override;
  void AppendDigestParts(audit::StateParts* parts) const override;
  int64_t num_tokens() const override { return num_tokens_; }
  size_t state_bytes() const override;
  size_t stored_input_bytes() const override;
  const CpuModelState* AsCpu() const override { return this; }
  absl::Status SkipSlots(int64_t count) override;
  std::vector<SvGroup> SvGroups() const override;

  // The layer at ModelConfig::bank; null when the model has none.
  const MemoryLayerState* bank() const;

 private:
  friend class BankEdit;

  CpuModelState(std::shared_ptr<const Model> model, const MemoryOverrides& overrides,
                size_t stored_input_bytes);
  // The layer at rank 0.
  absl::StatusOr<std::unique_ptr<LayerState>> MakeLayer(size_t index) const;
  // The same model and options, without layers.
  std::unique_ptr<CpuModelState> EmptyCopy() const;
  void Embed(absl::Span<const int32_t> vocab_ids, absl::Span<float> x) const;
  // The end of a BankEdit: the bank lacks the last token, whose place is num_tokens - 1.
  absl::Status RepeatLast(int64_t num_tokens);
  MemoryLayerState* mutable_bank();
  absl::Status EvaluateBlock(absl::Span<const int32_t> vocab_ids, absl::Span<float> logits);

  size_t max_stored_bytes_;
  std::shared_ptr<const std::vector<LayerConfig>> layer_configs_;  // the model's with the overrides
  int64_t num_tokens_ = 0;
  int64_t num_read_ = 0;  // rank of the last snapshot that was read
  std::vector<std::unique_ptr<LayerState>> layers_;
  WipedFloats features_;  // residual stream of the last token after the last layer, [width]
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_CPU_MODEL_STATE_H_
