// cuda::CopyAsync16, CommitCopies, WaitForCopies: copies from device memory to shared memory that run beside the
// threads (cp.async).
//
// Shapes:   16 bytes a call.
// Units:    none.
// Requires: both addresses aligned to 16 bytes; `from` readable memory even where nothing is copied.
// Rejects:  none.
// Effects:  CopyAsync16 writes `to`: what is there, or zeros. CommitCopies ends a group of copies;
//           WaitForCopies<n> waits for all groups of this thread but its n last ones.
// Numerics: none.
// Threads:  each its own groups; a barrier makes what was copied visible to others.
#ifndef LETHE_KERNELS_BASE_COPY_ASYNC_CUDA_CUH_
#define LETHE_KERNELS_BASE_COPY_ASYNC_CUDA_CUH_

#include <cstdint>

namespace lethe::cuda {

// cuda_pipeline.h's function branches on how much is there; here it is an operand.
__device__ __forceinline__ void CopyAsync16(void* to, const void* from, bool is_there = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from),
                 "r"(is_there ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kGroups>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

}  // namespace lethe::cuda

#endif  // LETHE_KERNELS_BASE_COPY_ASYNC_CUDA_CUH_
