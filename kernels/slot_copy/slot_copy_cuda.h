// SlotCopyCuda: the CUDA form of slot_copy.h; internal to kernels/slot_copy.
//
// Equation:  as in slot_copy.h: from `from` to `to`, each an image or, where that is null, a slot of the
//            pools; without a source zeros.
// Shapes:    as in slot_copy.h.
// Units:     bytes.
// Requires:  what slot_copy.h requires.
// Rejects:   INTERNAL when the launch fails.
// Effects:   enqueues the work.
// Numerics:  as in slot_copy.h.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_SLOT_COPY_SLOT_COPY_CUDA_H_
#define LETHE_KERNELS_SLOT_COPY_SLOT_COPY_CUDA_H_

#include "kernels/slot_copy/slot_copy.h"

namespace lethe::slot_copy {

struct Copy {
  const std::byte* from_image = nullptr;
  int32_t from_slot = -1;
  std::byte* to_image = nullptr;
  int32_t to_slot = -1;
};

absl::Status SlotCopyCuda(Queue* queue, const PooledParts& parts, const Copy& copy);

}  // namespace lethe::slot_copy

#endif  // LETHE_KERNELS_SLOT_COPY_SLOT_COPY_CUDA_H_
