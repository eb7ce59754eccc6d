#include "server/device/slot_arrays.h"

#include <algorithm>
#include <vector>

#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

constexpr size_t kPoolAlignment = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<SlotArrays>> SlotArrays::Create(Queue* queue,
                                                               const ModelConfig& config,
                                                               int32_t num_slots) {
  std::unique_ptr<SlotArrays> arrays(new SlotArrays(config));
  std::vector<size_t> begins;
  size_t size = 0;
  for (const SlotPart& part : arrays->layout_.parts()) {
    begins.push_back(size);
    const size_t bytes = part.bytes * static_cast<size_t>(num_slots);
    size += (bytes + kPoolAlignment - 1) / kPoolAlignment * kPoolAlignment;
  }
  LETHE_ASSIGN_OR_RETURN(arrays->storage_, DeviceArray<std::byte>::Zeros(queue, size));
  std::vector<PooledPart> table;
  for (const SlotPart& part : arrays->layout_.parts()) {
    std::byte* pool = arrays->storage_.data() + begins[table.size()];
    arrays->pools_[part.begin] = pool;
    table.push_back({pool, static_cast<int64_t>(part.bytes), static_cast<int64_t>(part.begin)});
    arrays->longest_ = std::max(arrays->longest_, static_cast<int64_t>(part.bytes));
  }
  LETHE_ASSIGN_OR_RETURN(arrays->table_, DeviceArray<PooledPart>::From(queue, table));
  return arrays;
}

}  // namespace lethe
