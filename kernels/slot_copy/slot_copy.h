// GatherSlot, ScatterSlot, CopySlot, ZeroSlot: one slot of many pools at once, on the queue's device.
//
// Equation:  GatherSlot: image[begin …] = pool[slot] of every part; ScatterSlot: back. CopySlot: pool[to] =
//            pool[from]. ZeroSlot: pool[slot] = 0.
// Shapes:    a part's pool: [num_slots][bytes]; image: every part's bytes from its `begin`.
// Units:     bytes.
// Requires:  parts, pools and image on the queue's device; bytes, begins and addresses multiples of 4;
//            num_parts <= 65535, `longest` no less than a part's bytes (LETHE_CHECK of what the host
//            sees); from and to differ.
// Rejects:   INTERNAL when the launch fails.
// Effects:   enqueue the work.
// Numerics:  every bit is kept.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_SLOT_COPY_SLOT_COPY_H_
#define LETHE_KERNELS_SLOT_COPY_SLOT_COPY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"

namespace lethe {

struct PooledPart {
  std::byte* pool = nullptr;
  int64_t bytes = 0;  // of a slot
  int64_t begin = 0;  // in an image
};

struct PooledParts {
  const PooledPart* parts = nullptr;
  int64_t num_parts = 0;
  int64_t longest = 0;
};

absl::Status GatherSlot(Queue* queue, const PooledParts& parts, int32_t slot, std::byte* image);
absl::Status ScatterSlot(Queue* queue, const PooledParts& parts, const std::byte* image,
                         int32_t slot);
absl::Status CopySlot(Queue* queue, const PooledParts& parts, int32_t from, int32_t to);
absl::Status ZeroSlot(Queue* queue, const PooledParts& parts, int32_t slot);

}  // namespace lethe

#endif  // LETHE_KERNELS_SLOT_COPY_SLOT_COPY_H_
