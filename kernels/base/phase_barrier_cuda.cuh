// cuda::InitBarrier, ArriveAtBarrier, HasPassed: mbarriers in shared memory, at which the threads of a
// block meet from any places in its code, where __syncthreads may stand in one only.
//
// Equation:  none.
// Shapes:    one uint64_t in shared memory a barrier.
// Units:     arrivals of threads.
// Requires:  one thread has called InitBarrier before a __syncthreads, and all use comes after that.
// Rejects:   none.
// Effects:   a phase ends when as many threads have arrived as InitBarrier was told; then the next one
//            begins. HasPassed(barrier, parity) waits a while and tells whether the phase of that
//            parity, 0 for the first, has ended; nobody may ask for one before the last.
// Numerics:  none.
// Threads:   what a thread wrote before it arrived is visible to those for whom the phase has passed.
#ifndef LETHE_KERNELS_BASE_PHASE_BARRIER_CUDA_CUH_
#define LETHE_KERNELS_BASE_PHASE_BARRIER_CUDA_CUH_

#include <cstdint>

namespace lethe::cuda {

__device__ __forceinline__ void InitBarrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(barrier))),
               "r"(arrivals)
               : "memory");
}

__device__ __forceinline__ void ArriveAtBarrier(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(barrier)))
               : "memory");
}

// PTX ISA 9.7.13; sm_80 has no try_wait.
__device__ __forceinline__ bool HasPassed(uint64_t* barrier, unsigned parity) {
  unsigned passed;
  asm volatile(
      "{ .reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
      "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
#else
      "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
#endif
      "selp.u32 %0, 1, 0, p; }"
      : "=r"(passed)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(barrier))), "r"(parity)
      : "memory");
  return passed != 0;
}

}  // namespace lethe::cuda

#endif  // LETHE_KERNELS_BASE_PHASE_BARRIER_CUDA_CUH_
