// cuda::LaunchEarly, cuda::WaitForEarlierKernels: a kernel whose launch overlaps the end of the one
// before it in the stream (programmatic dependent launch): one to two microseconds to a short kernel.
//
// Equation:  none.
// Shapes:    none.
// Units:     bytes of dynamic shared memory.
// Requires:  every thread of the kernel calls WaitForEarlierKernels before it touches device memory.
// Rejects:   none; an error of the launch shows in Queue::LaunchStatus.
// Effects:   when WaitForEarlierKernels returns, the kernels before have finished and what they wrote is
//            visible. Below compute capability 9.0 an ordinary launch.
// Numerics:  none.
// Threads:   as Queue.
#ifndef LETHE_KERNELS_BASE_EARLY_LAUNCH_CUDA_CUH_
#define LETHE_KERNELS_BASE_EARLY_LAUNCH_CUDA_CUH_

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "kernels/base/queue.h"

namespace lethe::cuda {

// And lets the kernel after this one be launched.
__device__ __forceinline__ void WaitForEarlierKernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : : : "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

template <typename... Parameters, typename... Arguments>
void LaunchEarly(Queue* queue, void (*kernel)(Parameters...), int64_t num_blocks, int num_threads,
                 size_t shared_bytes, const Arguments&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks));
  config.blockDim = dim3(static_cast<unsigned>(num_threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = queue->stream();
  config.attrs = &early;
  config.numAttrs = queue->compute_capability() >= 90 ? 1 : 0;
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace lethe::cuda

#endif  // LETHE_KERNELS_BASE_EARLY_LAUNCH_CUDA_CUH_
