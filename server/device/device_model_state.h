// DeviceModelState, DeviceBackend: sessions of a model that compute on an engine's device, many at once.
//
// Equation:  model_state.h; every memory folds step by step (device_forward.h).
// Shapes:    logits [vocab_size] f32.
// Units:     model_state.h.
// Requires:  model_state.h; the engine is of the model.
// Rejects:   NewState: INVALID_ARGUMENT for an ovq_slots other than the model's, whose dictionaries share one
//            shape in the pool. Everything that evaluates: the engine's errors (device_engine.h). A snapshot that
//            could not be taken says why when it is restored.
// Effects:   a snapshot is an image on the host. A Clone begins as one and takes a slot when it evaluates.
//            Images and logits are overwritten when dropped. WriteSnapshot is not for models with sv groups, whose
//            keys it would have to hold: they come back from their inputs.
// Numerics:  bits are a function of the token sequence alone: not of the batch, slot or spill; on the host
//            queue they are CpuModelState's, and so is the digest.
// Threads:   DeviceModelState: compatible, different states at the same time; DeviceBackend: safe.
#ifndef LETHE_SERVER_DEVICE_DEVICE_MODEL_STATE_H_
#define LETHE_SERVER_DEVICE_DEVICE_MODEL_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "kernels/base/wiped.h"
#include "server/device/device_engine.h"
#include "server/model/model_backend.h"
#include "server/model/model_state.h"

namespace lethe {

class DeviceModelState final : public ModelState {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceModelState>> Create(
      std::shared_ptr<DeviceEngine> engine, std::shared_ptr<const Model> model,
      const MemoryOverrides& overrides);

  absl::Status EvaluateWithLogits(absl::Span<const int32_t> vocab_ids,
                                  absl::Span<float> logits) override;
  absl::Status Logits(absl::Span<float> logits) const override;
  std::shared_ptr<const ModelSnapshot> Snapshot() const override;
  absl::Status Restore(const ModelSnapshot& snapshot) override;
  std::string WriteSnapshot(const ModelSnapshot& snapshot, int64_t inputs_from) const override;
  absl::StatusOr<std::shared_ptr<const ModelSnapshot>> ReadSnapshot(
      absl::string_view bytes) override;
  std::unique_ptr<ModelState> Clone() const override;
  // The process ends when the device no longer gives the state away: a digest of anything else would be a lie.
  void AppendDigestParts(audit::StateParts* parts) const override;
  int64_t num_tokens() const override { return num_tokens_; }
  size_t state_bytes() const override;
  absl::Status SkipSlots(int64_t count) override;
  // A snapshot is a copy of the whole state over the bus while every stream waits, and a token evaluated again
  // costs a device little: so the farther apart, the larger the state.
  int64_t snapshot_tokens() const override;
  bool writes_snapshots() const override;
  std::vector<SvGroup> SvGroups() const override;

 private:
  DeviceModelState(std::shared_ptr<DeviceEngine> engine, std::shared_ptr<const Model> model,
                   const MemoryOverrides& overrides);

  const std::shared_ptr<DeviceEngine> engine_;
  const std::shared_ptr<const ModelConfig> config_;  // the model's with the overrides
  std::unique_ptr<EngineState> state_;
  int64_t num_tokens_ = 0;
  int64_t num_read_ = 0;  // rank of the last snapshot that was read
  WipedFloats logits_;    // after the last token
};

class DeviceBackend final : public ModelBackend {
 public:
  DeviceBackend(std::shared_ptr<DeviceEngine> engine, Numerics numerics)
      : engine_(std::move(engine)), numerics_(std::move(numerics)) {}
  absl::StatusOr<std::unique_ptr<ModelState>> NewState(std::shared_ptr<const Model> model,
                                                       const MemoryOverrides& overrides) override;
  Numerics numerics() const override { return numerics_; }
  const std::shared_ptr<DeviceEngine>& engine() const { return engine_; }

 private:
  const std::shared_ptr<DeviceEngine> engine_;
  const Numerics numerics_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_DEVICE_MODEL_STATE_H_
