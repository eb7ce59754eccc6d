#include "kernels/slot_copy/slot_copy.h"

#include <cstring>

#include "kernels/base/check.h"
#include "kernels/base/on_cuda.h"
#include "kernels/slot_copy/slot_copy_cuda.h"

namespace lethe {
namespace {

constexpr int64_t kPartsMax = 65535;  // of a launch's grid

void CopyOnHost(const PooledParts& parts, const slot_copy::Copy& copy) {
  for (int64_t i = 0; i < parts.num_parts; ++i) {
    const PooledPart& part = parts.parts[i];
    const auto size = static_cast<size_t>(part.bytes);
    std::byte* to = copy.to_image != nullptr ? copy.to_image + part.begin
                                             : part.pool + copy.to_slot * part.bytes;
    if (copy.from_image != nullptr) {
      std::memcpy(to, copy.from_image + part.begin, size);
    } else if (copy.from_slot >= 0) {
      std::memcpy(to, part.pool + copy.from_slot * part.bytes, size);
    } else {
      std::memset(to, 0, size);
    }
  }
}

absl::Status Run(Queue* queue, const PooledParts& parts, const slot_copy::Copy& copy) {
  LETHE_CHECK(parts.num_parts >= 0 && parts.num_parts <= kPartsMax && parts.longest >= 0);
  if (parts.num_parts == 0 || parts.longest == 0) return absl::OkStatus();
  if (queue->kind() == DeviceKind::kCuda) {
    return LETHE_ON_CUDA(slot_copy::SlotCopyCuda(queue, parts, copy));
  }
  CopyOnHost(parts, copy);
  return absl::OkStatus();
}

}  // namespace

absl::Status GatherSlot(Queue* queue, const PooledParts& parts, int32_t slot, std::byte* image) {
  LETHE_CHECK(slot >= 0 && image != nullptr);
  return Run(queue, parts, {.from_slot = slot, .to_image = image});
}

absl::Status ScatterSlot(Queue* queue, const PooledParts& parts, const std::byte* image,
                         int32_t slot) {
  LETHE_CHECK(slot >= 0 && image != nullptr);
  return Run(queue, parts, {.from_image = image, .to_slot = slot});
}

absl::Status CopySlot(Queue* queue, const PooledParts& parts, int32_t from, int32_t to) {
  LETHE_CHECK(from >= 0 && to >= 0 && from != to);
  return Run(queue, parts, {.from_slot = from, .to_slot = to});
}

absl::Status ZeroSlot(Queue* queue, const PooledParts& parts, int32_t slot) {
  LETHE_CHECK(slot >= 0);
  return Run(queue, parts, {.to_slot = slot});
}

}  // namespace lethe
