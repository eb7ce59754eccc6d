#include "kernels/base/queue_cuda.h"

#include <cstring>

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

absl::Status ToStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("CUDA: ", what, ": ", cudaGetErrorString(error)));
}

class Event {
 public:
  Event() { static_cast<void>(cudaEventCreate(&event_)); }  // a null event fails where it is used
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { static_cast<void>(cudaEventDestroy(event_)); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

absl::StatusOr<CudaQueue> CreateCudaQueue() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat("no CUDA device: ", cudaGetErrorString(error)));
  }
  if (count == 0) return absl::UnavailableError("no CUDA device: the driver knows none");
  CudaQueue queue;
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, 0); error != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat("no CUDA device: ", cudaGetErrorString(error)));
  }
  queue.num_multiprocessors = properties.multiProcessorCount;
  queue.compute_capability = properties.major * 10 + properties.minor;
  if (queue.compute_capability < 80) {
    return absl::UnavailableError(
        absl::StrCat("no CUDA device of compute capability 8.0 or above: ", properties.name,
                     " has ", properties.major, ".", properties.minor));
  }
  const cudaError_t error = cudaStreamCreateWithFlags(&queue.stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat("no CUDA stream: ", cudaGetErrorString(error)));
  }
  return queue;
}

void DestroyCudaQueue(CUstream_st* stream) {
  // A failed stream cannot be destroyed either; its error was Finish's to tell.
  static_cast<void>(cudaStreamSynchronize(stream));
  static_cast<void>(cudaStreamDestroy(stream));
}

absl::Status CudaFinish(CUstream_st* stream) {
  return ToStatus(cudaStreamSynchronize(stream), "finishing a queue");
}

absl::StatusOr<double> CudaTime(CUstream_st* stream, absl::FunctionRef<absl::Status()> work) {
  const Event begin;
  const Event end;
  LETHE_RETURN_IF_ERROR(ToStatus(cudaEventRecord(begin.get(), stream), "timing"));
  LETHE_RETURN_IF_ERROR(work());
  LETHE_RETURN_IF_ERROR(ToStatus(cudaEventRecord(end.get(), stream), "timing"));
  LETHE_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(end.get()), "timing"));
  float milliseconds = 0.0f;
  LETHE_RETURN_IF_ERROR(
      ToStatus(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "timing"));
  return milliseconds * 1e-3;
}

absl::Status CudaLaunchStatus(const char* kernel) { return ToStatus(cudaGetLastError(), kernel); }

absl::StatusOr<void*> CudaAllocate(CUstream_st* stream, size_t bytes) {
  void* data = nullptr;
  if (const cudaError_t error = cudaMalloc(&data, bytes); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // else the next launch would report it
    if (error == cudaErrorMemoryAllocation) {
      return absl::ResourceExhaustedError(absl::StrCat("no device memory for ", bytes, " bytes"));
    }
    return ToStatus(error, "allocating");
  }
  if (const cudaError_t error = cudaMemsetAsync(data, 0, bytes, stream); error != cudaSuccess) {
    static_cast<void>(cudaFree(data));
    return ToStatus(error, "zeroing");
  }
  return data;
}

void CudaFree(CUstream_st* stream, void* data, size_t bytes) {
  // After a device error nothing can be wiped, nor read by anybody: the context is lost.
  static_cast<void>(cudaMemsetAsync(data, 0, bytes, stream));
  static_cast<void>(cudaStreamSynchronize(stream));
  static_cast<void>(cudaFree(data));
}

absl::StatusOr<void*> CudaAllocateHost(size_t bytes) {
  void* data = nullptr;
  if (const cudaError_t error = cudaMallocHost(&data, bytes); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // else the next launch would report it
    if (error == cudaErrorMemoryAllocation) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no page-locked host memory for ", bytes, " bytes"));
    }
    return ToStatus(error, "allocating on the host");
  }
  std::memset(data, 0, bytes);
  return data;
}

void CudaFreeHost(CUstream_st* stream, void* data, size_t bytes) {
  static_cast<void>(cudaStreamSynchronize(stream));  // a copy may still read it
  explicit_bzero(data, bytes);
  static_cast<void>(cudaFreeHost(data));
}

absl::Status CudaCopyToDevice(CUstream_st* stream, const void* host, size_t bytes, void* device) {
  // From pageable memory the call returns when the host's copy has been read.
  return ToStatus(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream),
                  "copying to the device");
}

absl::Status CudaCopyToHost(CUstream_st* stream, const void* device, size_t bytes, void* host) {
  if (const cudaError_t error =
          cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream);
      error != cudaSuccess) {
    return ToStatus(error, "copying to the host");
  }
  return CudaFinish(stream);
}

absl::Status CudaCopyOnDevice(CUstream_st* stream, const void* from, size_t bytes, void* to) {
  return ToStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "copying");
}

absl::Status CudaSetZero(CUstream_st* stream, void* device, size_t bytes) {
  return ToStatus(cudaMemsetAsync(device, 0, bytes, stream), "zeroing");
}

absl::StatusOr<CUgraphExec_st*> CudaCapture(CUstream_st* stream,
                                            absl::FunctionRef<absl::Status()> work) {
  // Of this thread alone: what other threads do with other streams goes on.
  LETHE_RETURN_IF_ERROR(ToStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                                 "capturing launches"));
  const absl::Status enqueued = work();
  cudaGraph_t graph = nullptr;
  const cudaError_t captured = cudaStreamEndCapture(stream, &graph);
  cudaGraphExec_t executable = nullptr;
  absl::Status status = enqueued.ok() ? ToStatus(captured, "capturing launches") : enqueued;
  if (status.ok()) {
    status = ToStatus(cudaGraphInstantiate(&executable, graph, 0), "making a graph of launches");
  }
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  static_cast<void>(cudaGetLastError());  // else the next launch would report it
  if (!status.ok()) return status;
  return executable;
}

absl::Status CudaLaunchGraph(CUstream_st* stream, CUgraphExec_st* graph) {
  return ToStatus(cudaGraphLaunch(graph, stream), "launching a graph");
}

void CudaDestroyGraph(CUgraphExec_st* graph) { static_cast<void>(cudaGraphExecDestroy(graph)); }

}  // namespace lethe
