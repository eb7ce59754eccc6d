// LETHE_ON_CUDA: the call of a CUDA form, where an operation chooses by its queue's device.
//
//   if (queue->kind() == DeviceKind::kCuda) return LETHE_ON_CUDA(FoldCuda(queue, batch));
//
// Requires: an absl::Status expression. A build without CUDA leaves it out: it has no CUDA queue.
// Threads:  none.   Numerics: none.
#ifndef LETHE_KERNELS_BASE_ON_CUDA_H_
#define LETHE_KERNELS_BASE_ON_CUDA_H_

#include "absl/status/status.h"

#ifdef LETHE_CUDA
#define LETHE_ON_CUDA(call) call
#else
#define LETHE_ON_CUDA(call) ::absl::UnimplementedError("built without the CUDA back end")
#endif

#endif  // LETHE_KERNELS_BASE_ON_CUDA_H_
