// HeldMemory: every block that the queues of this process hold, on their devices and page-locked on the host: what a test scans
// for bytes that were to be erased.
//
// Equation:  none.
// Shapes:    none.
// Units:     bytes.
// Requires:  a block is read by the owner of its queue, while it is held.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   safe; the list is of the moment.
#ifndef LETHE_KERNELS_BASE_HELD_MEMORY_H_
#define LETHE_KERNELS_BASE_HELD_MEMORY_H_

#include <cstddef>
#include <vector>

namespace lethe {

class Queue;

struct HeldBlock {
  const void* data = nullptr;
  size_t bytes = 0;
  const Queue* queue = nullptr;
  bool on_device = false;  // of the queue; else on the host
};

std::vector<HeldBlock> HeldMemory();

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_HELD_MEMORY_H_
