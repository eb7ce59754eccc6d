// SlotArrays: the pools of a StatePool, one for each part of a slot; internal to server/device.
//
// Equation:  none.
// Shapes:    a part's pool: [num_slots][the part's shape] (slot_layout.h), aligned to 256 bytes.
// Units:     bytes.
// Requires:  parts of layout().
// Rejects:   Create: RESOURCE_EXHAUSTED with the bytes asked for.
// Effects:   zero when created, overwritten before it is freed.
// Numerics:  none.
// Threads:   the queue's owner.
#ifndef LETHE_SERVER_DEVICE_SLOT_ARRAYS_H_
#define LETHE_SERVER_DEVICE_SLOT_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"

#include "kernels/base/queue.h"
#include "kernels/slot_copy/slot_copy.h"
#include "server/device/slot_layout.h"

namespace lethe {

class SlotArrays {
 public:
  static absl::StatusOr<std::unique_ptr<SlotArrays>> Create(Queue* queue, const ModelConfig& config,
                                                            int32_t num_slots);

  const SlotLayout& layout() const { return layout_; }
  // Null for a part without bytes.
  float* Floats(const SlotPart& part) const { return reinterpret_cast<float*>(Pool(part)); }
  int32_t* Ints(const SlotPart& part) const { return reinterpret_cast<int32_t*>(Pool(part)); }
  PooledParts table() const {
    return {table_.data(), static_cast<int64_t>(table_.size()), longest_};
  }

 private:
  explicit SlotArrays(const ModelConfig& config) : layout_(config) {}
  std::byte* Pool(const SlotPart& part) const {
    return part.bytes == 0 ? nullptr : pools_.at(part.begin);
  }

  SlotLayout layout_;
  DeviceArray<std::byte> storage_;
  std::map<size_t, std::byte*> pools_;  // by the part's place in an image
  DeviceArray<PooledPart> table_;
  int64_t longest_ = 0;
};

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_SLOT_ARRAYS_H_
