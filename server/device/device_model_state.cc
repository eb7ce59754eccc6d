#include "server/device/device_model_state.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "kernels/base/byte_io.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "memory/memory.h"

namespace lethe {
namespace {

// CpuModelState's is 1: a stored snapshot of the one is none of the other.
constexpr uint64_t kSnapshotBytesVersion = 2;

// Of a state of so many bytes every boundary is kept.
constexpr size_t kSnapshotBytesPerChunk = size_t{32} << 10;
constexpr int64_t kSnapshotTokensMax = 512;

absl::Status OtherSnapshot() { return absl::DataLossError("stored snapshot: of another state"); }

class DeviceModelSnapshot final : public ModelSnapshot {
 public:
  DeviceModelSnapshot(absl::StatusOr<EngineSnapshot> state, WipedFloats logits)
      : state_(std::move(state)), logits_(std::move(logits)) {
    if (state_.ok()) num_tokens_ = state_->num_tokens;
  }
  size_t state_bytes() const override {
    return (state_.ok() ? state_->image.size() : 0) + logits_.size() * sizeof(float);
  }
  const absl::StatusOr<EngineSnapshot>& state() const { return state_; }
  const WipedFloats& logits() const { return logits_; }

 private:
  absl::StatusOr<EngineSnapshot> state_;
  WipedFloats logits_;
};

absl::Status CheckDeviceOverrides(const ModelConfig& config, const MemoryOverrides& overrides) {
  LETHE_RETURN_IF_ERROR(CheckOverrides(overrides));
  if (!overrides.ovq_slots.has_value()) return absl::OkStatus();
  for (const LayerConfig& layer : config.layers) {
    const auto* memory = std::get_if<MemoryLayerConfig>(&layer);
    if (memory == nullptr) continue;
    for (const GroupConfig& group : memory->groups) {
      if (group.kind != MemoryKind::kOvq || group.slots == *overrides.ovq_slots) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "ovq_slots must be ", group.slots, " on this device, which is the model's, or left out"));
    }
  }
  return absl::OkStatus();
}

std::shared_ptr<const ModelConfig> ConfigWith(const ModelConfig& config,
                                              const MemoryOverrides& overrides) {
  ModelConfig with = config;
  with.layers = LayersWith(config, overrides);
  return std::make_shared<const ModelConfig>(std::move(with));
}

}  // namespace

DeviceModelState::DeviceModelState(std::shared_ptr<DeviceEngine> engine,
                                   std::shared_ptr<const Model> model,
                                   const MemoryOverrides& overrides)
    : ModelState(std::move(model), overrides),
      engine_(std::move(engine)),
      config_(ConfigWith(model_->config(), overrides)),
      state_(engine_->NewState(config_)),
      logits_(static_cast<size_t>(model_->config().vocab_size)) {}

absl::StatusOr<std::unique_ptr<DeviceModelState>> DeviceModelState::Create(
    std::shared_ptr<DeviceEngine> engine, std::shared_ptr<const Model> model,
    const MemoryOverrides& overrides) {
  LETHE_RETURN_IF_ERROR(CheckDeviceOverrides(model->config(), overrides));
  return std::unique_ptr<DeviceModelState>(
      new DeviceModelState(std::move(engine), std::move(model), overrides));
}

absl::Status DeviceModelState::EvaluateWithLogits(absl::Span<const int32_t> vocab_ids,
                                                  absl::Span<float> logits) {
  LETHE_CHECK(logits.empty() || logits.size() == vocab_ids.size() * logits_.size());
  if (vocab_ids.empty()) return absl::OkStatus();
  LETHE_RETURN_IF_ERROR(
      engine_->Evaluate(state_.get(), vocab_ids, absl::MakeSpan(logits_), logits));
  num_tokens_ += static_cast<int64_t>(vocab_ids.size());
  return absl::OkStatus();
}

absl::Status DeviceModelState::Logits(absl::Span<float> logits) const {
  if (num_tokens_ == 0) return absl::FailedPreconditionError("there is no token to predict from");
  std::copy(logits_.begin(), logits_.end(), logits.begin());
  return absl::OkStatus();
}

std::shared_ptr<const ModelSnapshot> DeviceModelState::Snapshot() const {
  absl::StatusOr<EngineSnapshot> state = EngineSnapshot();
  if (num_tokens_ > 0) state = engine_->Snapshot(state_.get());
  return std::make_shared<DeviceModelSnapshot>(std::move(state), logits_);
}

absl::Status DeviceModelState::Restore(const ModelSnapshot& snapshot) {
  const auto* device = dynamic_cast<const DeviceModelSnapshot*>(&snapshot);
  if (device == nullptr) return absl::InvalidArgumentError("snapshot of another device");
  LETHE_RETURN_IF_ERROR(device->state().status());
  LETHE_RETURN_IF_ERROR(engine_->Restore(*device->state(), state_.get()));
  num_tokens_ = snapshot.num_tokens();
  logits_ = device->logits();
  return absl::OkStatus();
}

int64_t DeviceModelState::snapshot_tokens() const {
  int64_t tokens = kChunkTokens;
  for (size_t bytes = kSnapshotBytesPerChunk;
       bytes < engine_->slot_bytes() && tokens < kSnapshotTokensMax; bytes *= 2) {
    tokens *= 2;
  }
  return tokens;
}

bool DeviceModelState::writes_snapshots() const { return !HasSvGroups(*config_); }

std::string DeviceModelState::WriteSnapshot(const ModelSnapshot& snapshot,
                                            int64_t inputs_from) const {
  const auto& device = dynamic_cast<const DeviceModelSnapshot&>(snapshot);
  LETHE_CHECK(writes_snapshots());
  if (!device.state().ok()) return std::string();  // ReadSnapshot refuses it; the inputs are there
  const SlotImage& image = device.state()->image;
  ByteWriter writer;
  writer.U64(kSnapshotBytesVersion);
  writer.I64(inputs_from);
  writer.I64(snapshot.num_tokens());
  writer.String(absl::string_view(reinterpret_cast<const char*>(image.data()), image.size()));
  writer.Array<float>(device.logits());
  return writer.Take();
}

absl::StatusOr<std::shared_ptr<const ModelSnapshot>> DeviceModelState::ReadSnapshot(
    absl::string_view bytes) {
  ByteReader reader(bytes);
  uint64_t version = 0;
  int64_t inputs_from = 0;
  int64_t num_tokens = 0;
  LETHE_RETURN_IF_ERROR(reader.U64(&version));
  LETHE_RETURN_IF_ERROR(reader.I64(&inputs_from));
  LETHE_RETURN_IF_ERROR(reader.I64(&num_tokens));
  const bool goes_on = inputs_from == num_read_ && num_tokens > inputs_from &&
                       num_tokens % kChunkTokens == 0 && num_tokens_ == 0;
  if (version != kSnapshotBytesVersion || !goes_on || !writes_snapshots()) return OtherSnapshot();
  std::string image;
  std::vector<float> logits;
  LETHE_RETURN_IF_ERROR(reader.String(&image));
  const absl::Status rest = reader.Array(&logits);
  const auto* image_bytes = reinterpret_cast<const std::byte*>(image.data());
  EngineSnapshot state;
  state.num_tokens = num_tokens;
  state.image.assign(image_bytes, image_bytes + image.size());
  WipedFloats wiped_logits(logits.begin(), logits.end());
  explicit_bzero(image.data(), image.size());
  WipeFrom(&logits, 0);
  LETHE_RETURN_IF_ERROR(rest);
  if (state.image.size() != engine_->slot_bytes() || wiped_logits.size() != logits_.size() ||
      reader.remaining() != 0) {
    return OtherSnapshot();
  }
  num_read_ = num_tokens;
  return std::make_shared<DeviceModelSnapshot>(std::move(state), std::move(wiped_logits));
}

std::unique_ptr<ModelState> DeviceModelState::Clone() const {
  std::unique_ptr<DeviceModelState> clone(new DeviceModelState(engine_, model_, overrides_));
  if (num_tokens_ == 0) return clone;
  // A state that cannot be copied is one that cannot go on: the clone says so when it is used.
  if (!engine_->Clone(state_.get(), clone->state_.get()).ok()) {
    clone->state_ = engine_->LostState();
  }
  clone->num_tokens_ = num_tokens_;
  clone->logits_ = logits_;
  return clone;
}

void DeviceModelState::AppendDigestParts(audit::StateParts* parts) const {
  AppendOptions(config_->layers, num_tokens_, parts);
  LETHE_CHECK(engine_->AppendDigestParts(state_.get(), parts).ok());
}

std::vector<ModelState::SvGroup> DeviceModelState::SvGroups() const {
  std::vector<SvGroup> groups;
  if (!HasSvGroups(*config_)) return groups;
  const absl::StatusOr<const SvSession*> sv = engine_->SyncedSv(state_.get());
  LETHE_CHECK(sv.ok());
  for (size_t i = 0; i < config_->layers.size(); ++i) {
    const auto* memory = std::get_if<MemoryLayerConfig>(&config_->layers[i]);
    if (memory == nullptr) continue;
    for (size_t g = 0; g < memory->groups.size(); ++g) {
      if (memory->groups[g].kind != MemoryKind::kSv) continue;
      groups.push_back({static_cast<int64_t>(i), static_cast<int64_t>(g),
                        (*sv)->group(groups.size()).sv_memory()});
    }
  }
  return groups;
}

size_t DeviceModelState::state_bytes() const {
  return engine_->slot_bytes() + logits_.size() * sizeof(float);
}

absl::Status DeviceModelState::SkipSlots(int64_t /*count*/) {
  return absl::UnimplementedError("masked slots on a device");
}

absl::StatusOr<std::unique_ptr<ModelState>> DeviceBackend::NewState(
    std::shared_ptr<const Model> model, const MemoryOverrides& overrides) {
  return DeviceModelState::Create(engine_, std::move(model), overrides);
}

}  // namespace lethe
