#include "server/device/state_pool.h"

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "kernels/slot_copy/slot_copy.h"
#include "server/device/slot_arrays.h"
#include "server/device/slot_digest.h"

namespace lethe {

StatePool::StatePool(const DeviceModel* model) : model_(model) {}

StatePool::~StatePool() = default;

absl::StatusOr<std::unique_ptr<StatePool>> StatePool::Create(const DeviceModel* model,
                                                             int32_t num_slots) {
  LETHE_CHECK(num_slots >= 1);
  const ModelConfig& config = model->model().config();
  Queue* queue = model->queue();
  std::unique_ptr<StatePool> pool(new StatePool(model));
  LETHE_ASSIGN_OR_RETURN(pool->arrays_, SlotArrays::Create(queue, config, num_slots));
  const SlotImage initial = pool->InitialImage();
  LETHE_ASSIGN_OR_RETURN(pool->initial_, DeviceArray<std::byte>::From(queue, initial));
  LETHE_ASSIGN_OR_RETURN(pool->staged_, DeviceArray<std::byte>::Zeros(queue, initial.size()));
  pool->is_taken_.resize(static_cast<size_t>(num_slots));
  for (int32_t slot = num_slots - 1; slot >= 0; --slot) pool->free_slots_.push_back(slot);
  return pool;
}

bool StatePool::IsTaken(int32_t slot) const {
  return slot >= 0 && slot < num_slots() && is_taken_[static_cast<size_t>(slot)];
}

absl::StatusOr<int32_t> StatePool::Allocate() {
  if (free_slots_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", num_slots(), " slots of the device's state pool are taken"));
  }
  const int32_t slot = free_slots_.back();
  if (!initial_.empty()) {
    LETHE_RETURN_IF_ERROR(ScatterSlot(model_->queue(), arrays_->table(), initial_.data(), slot));
  }
  free_slots_.pop_back();
  is_taken_[static_cast<size_t>(slot)] = true;
  return slot;
}

absl::Status StatePool::Free(int32_t slot) {
  LETHE_CHECK(IsTaken(slot));
  if (!FaultActive(Fault::kFreedMemoryKept)) {
    LETHE_RETURN_IF_ERROR(ZeroSlot(model_->queue(), arrays_->table(), slot));
  }
  is_taken_[static_cast<size_t>(slot)] = false;
  free_slots_.push_back(slot);
  return absl::OkStatus();
}

SlotImage StatePool::InitialImage() const {
  return lethe::InitialImage(model_->model().config(), arrays_->layout());
}

absl::StatusOr<SlotImage> StatePool::CopyToHost(int32_t slot) const {
  LETHE_CHECK(IsTaken(slot));
  SlotImage image(staged_.size());
  if (image.empty()) return image;
  Queue* queue = model_->queue();
  LETHE_RETURN_IF_ERROR(GatherSlot(queue, arrays_->table(), slot, staged_.data()));
  LETHE_RETURN_IF_ERROR(queue->CopyToHost(staged_.data(), staged_.size(), image.data()));
  LETHE_RETURN_IF_ERROR(queue->SetZero(staged_.data(), staged_.size()));
  return image;
}

absl::Status StatePool::CopyFromHost(const SlotImage& image, int32_t slot) {
  LETHE_CHECK(IsTaken(slot));
  if (image.size() != staged_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("image of a slot of ", image.size(),
                                                   " bytes, this model's have ", staged_.size()));
  }
  if (image.empty()) return absl::OkStatus();
  Queue* queue = model_->queue();
  LETHE_RETURN_IF_ERROR(queue->CopyToDevice(image.data(), image.size(), staged_.data()));
  LETHE_RETURN_IF_ERROR(ScatterSlot(queue, arrays_->table(), staged_.data(), slot));
  return queue->SetZero(staged_.data(), staged_.size());
}

absl::Status StatePool::CopySlot(int32_t from, int32_t to) {
  LETHE_CHECK(IsTaken(from) && IsTaken(to) && from != to);
  return lethe::CopySlot(model_->queue(), arrays_->table(), from, to);
}

absl::Status StatePool::AppendDigestParts(int32_t slot, int64_t num_tokens,
                                          audit::StateParts* parts, const SvSession* sv) const {
  LETHE_ASSIGN_OR_RETURN(const SlotImage image, CopyToHost(slot));
  AppendDigestParts(image, num_tokens, parts, sv);
  return absl::OkStatus();
}

void StatePool::AppendDigestParts(const SlotImage& image, int64_t num_tokens,
                                  audit::StateParts* parts, const SvSession* sv) const {
  AppendSlotDigest(model_->model().config(), arrays_->layout(), image, num_tokens, sv, parts);
}

}  // namespace lethe
