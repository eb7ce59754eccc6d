#include "server/device/device_model.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/device/device_weights.h"
#include "server/device/slot_layout.h"

namespace lethe {
namespace {

// Of the batched kernels of palimpsa, vla and ovq.
constexpr int64_t kDimMax = 128;

absl::Status CheckGroup(const std::string& path, const GroupConfig& group) {
  const int64_t dim = std::max(group.key_dim, group.value_dim);
  const bool has_any_size = group.kind == MemoryKind::kWindow || group.kind == MemoryKind::kSv;
  if (!has_any_size && dim > kDimMax) {
    return absl::UnimplementedError(absl::StrCat(path, ": in batches key_dim and value_dim of ",
                                                 MemoryKindName(group.kind), " may be at most ",
                                                 kDimMax, ", got ", dim));
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const ModelConfig& config) {
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const auto* memory = std::get_if<MemoryLayerConfig>(&config.layers[i]);
    if (memory == nullptr) continue;
    for (size_t g = 0; g < memory->groups.size(); ++g) {
      const std::string path = absl::StrCat("layers[", i, "].groups[", g, "]");
      LETHE_RETURN_IF_ERROR(CheckGroup(path, memory->groups[g]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

DeviceModel::DeviceModel(Queue* queue, std::shared_ptr<const Model> model)
    : queue_(queue), model_(std::move(model)) {}

DeviceModel::~DeviceModel() = default;

absl::StatusOr<std::unique_ptr<DeviceModel>> DeviceModel::Create(
    Queue* queue, std::shared_ptr<const Model> model) {
  LETHE_RETURN_IF_ERROR(CheckModel(model->config()));
  std::unique_ptr<DeviceModel> on_device(new DeviceModel(queue, std::move(model)));
  const ModelConfig& config = on_device->model_->config();
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LETHE_ASSIGN_OR_RETURN(std::unique_ptr<DeviceLayerWeights> layer,
                           MakeDeviceLayer(queue, config.layers[i], on_device->model_->layer(i),
                                           &on_device->weight_bytes_));
    on_device->layers_.push_back(std::move(layer));
  }
  LETHE_ASSIGN_OR_RETURN(on_device->head_, MakeDeviceHead(queue, on_device->model_->head(),
                                                          &on_device->weight_bytes_));
  on_device->slot_bytes_ = SlotLayout(config).image_bytes();
  return on_device;
}

}  // namespace lethe
