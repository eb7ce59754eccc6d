// CudaQueue and its functions: what Queue does on a CUDA device; internal to kernels/base.
//
// Shapes:   none.
// Units:    bytes.
// Requires: a stream that CreateCudaQueue made.
// Rejects:  as queue.h. A build without CUDA answers UNAVAILABLE to CreateCudaQueue and never gets to
//           the rest.
// Effects:  as queue.h.
// Numerics: none.
// Threads:  as queue.h.
#ifndef LETHE_KERNELS_BASE_QUEUE_CUDA_H_
#define LETHE_KERNELS_BASE_QUEUE_CUDA_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct CUstream_st;
struct CUgraphExec_st;  // cudaGraphExec_t is a pointer to it

namespace lethe {

struct CudaQueue {
  CUstream_st* stream = nullptr;
  int num_multiprocessors = 0;
  int compute_capability = 0;
};

absl::StatusOr<CudaQueue> CreateCudaQueue();
void DestroyCudaQueue(CUstream_st* stream);
absl::Status CudaFinish(CUstream_st* stream);
absl::StatusOr<double> CudaTime(CUstream_st* stream, absl::FunctionRef<absl::Status()> work);
absl::Status CudaLaunchStatus(const char* kernel);
absl::StatusOr<void*> CudaAllocate(CUstream_st* stream, size_t bytes);
void CudaFree(CUstream_st* stream, void* data, size_t bytes);
absl::StatusOr<void*> CudaAllocateHost(size_t bytes);
void CudaFreeHost(CUstream_st* stream, void* data, size_t bytes);
absl::Status CudaCopyToDevice(CUstream_st* stream, const void* host, size_t bytes, void* device);
absl::Status CudaCopyToHost(CUstream_st* stream, const void* device, size_t bytes, void* host);
absl::Status CudaCopyOnDevice(CUstream_st* stream, const void* from, size_t bytes, void* to);
absl::Status CudaSetZero(CUstream_st* stream, void* device, size_t bytes);
// For LaunchGraph.
absl::StatusOr<CUgraphExec_st*> CudaCapture(CUstream_st* stream,
                                            absl::FunctionRef<absl::Status()> work);
absl::Status CudaLaunchGraph(CUstream_st* stream, CUgraphExec_st* graph);
void CudaDestroyGraph(CUgraphExec_st* graph);

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_QUEUE_CUDA_H_
