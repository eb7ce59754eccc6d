#include "kernels/base/check.h"
#include "kernels/base/queue_cuda.h"

namespace lethe {

absl::StatusOr<CudaQueue> CreateCudaQueue() {
  return absl::UnavailableError("no CUDA device: built without the CUDA back end");
}

// No queue of that kind exists to call the rest with.
void DestroyCudaQueue(CUstream_st* /*stream*/) { LETHE_CHECK(false); }
absl::Status CudaFinish(CUstream_st* /*stream*/) { LETHE_CHECK(false); }
absl::StatusOr<double> CudaTime(CUstream_st* /*stream*/,
                                absl::FunctionRef<absl::Status()> /*work*/) {
  LETHE_CHECK(false);
}
absl::Status CudaLaunchStatus(const char* /*kernel*/) { LETHE_CHECK(false); }
absl::StatusOr<void*> CudaAllocate(CUstream_st* /*stream*/, size_t /*bytes*/) {
  LETHE_CHECK(false);
}
void CudaFree(CUstream_st* /*stream*/, void* /*data*/, size_t /*bytes*/) { LETHE_CHECK(false); }
absl::StatusOr<void*> CudaAllocateHost(size_t /*bytes*/) { LETHE_CHECK(false); }
void CudaFreeHost(CUstream_st* /*stream*/, void* /*data*/, size_t /*bytes*/) { LETHE_CHECK(false); }
absl::Status CudaCopyToDevice(CUstream_st* /*stream*/, const void* /*host*/, size_t /*bytes*/,
                              void* /*device*/) {
  LETHE_CHECK(false);
}
absl::Status CudaCopyToHost(CUstream_st* /*stream*/, const void* /*device*/, size_t /*bytes*/,
                            void* /*host*/) {
  LETHE_CHECK(false);
}
absl::Status CudaCopyOnDevice(CUstream_st* /*stream*/, const void* /*from*/, size_t /*bytes*/,
                              void* /*to*/) {
  LETHE_CHECK(false);
}
absl::Status CudaSetZero(CUstream_st* /*stream*/, void* /*device*/, size_t /*bytes*/) {
  LETHE_CHECK(false);
}
absl::StatusOr<CUgraphExec_st*> CudaCapture(CUstream_st* /*stream*/,
                                            absl::FunctionRef<absl::Status()> /*work*/) {
  LETHE_CHECK(false);
}
absl::Status CudaLaunchGraph(CUstream_st* /*stream*/, CUgraphExec_st* /*graph*/) {
  LETHE_CHECK(false);
}
void CudaDestroyGraph(CUgraphExec_st* /*graph*/) { LETHE_CHECK(false); }

}  // namespace lethe
