// Queue, DeviceArray, HostArray: work in order on one device, host or CUDA, and memory that it can reach.
//
// Shapes:   a DeviceArray<T> is [size], contiguous, aligned to 256 bytes; a HostArray<T> too, on the host,
//           page-locked where the device copies by itself.
// Units:    bytes where a name says so.
// Requires: arrays outlive the work that uses them and die before their Queue; indices and sizes as
//           stated (LETHE_CHECK).
// Rejects:  Create: UNAVAILABLE when the build or the machine has no such device, and why. Allocate,
//           From, Zeros: RESOURCE_EXHAUSTED with the bytes that were asked for. Everything else:
//           INTERNAL with the device's message; the queue is then of no further use.
// Effects:  a CUDA queue is one stream: launches return at once, errors of the work itself come at
//           Finish. On the host every call has finished when it returns. CopyToDevice from a HostArray
//           may read it until Finish, from other memory it has been read on return. Memory is zero when
//           allocated and overwritten with zeros before it is freed: what a session held is in no
//           free block.
// Numerics: none.
// Threads:  compatible; one thread uses a Queue and its arrays at a time.
#ifndef LETHE_KERNELS_BASE_QUEUE_H_
#define LETHE_KERNELS_BASE_QUEUE_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/check.h"
#include "kernels/base/device.h"
#include "kernels/base/status_macros.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace lethe {

class Queue {
 public:
  static absl::StatusOr<std::unique_ptr<Queue>> Create(DeviceKind kind);
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue();

  DeviceKind kind() const { return kind_; }
  CUstream_st* stream() const { return stream_; }                   // null on the host
  int num_multiprocessors() const { return num_multiprocessors_; }  // 0 on the host
  int compute_capability() const { return compute_capability_; }    // 90 for 9.0, 0 on the host

  // Waits for everything enqueued and tells what went wrong in it.
  absl::Status Finish();

  // Seconds from the start to the end of what `work` enqueues, by the device's clock; on the host, of
  // the call itself. Waits for it.
  absl::StatusOr<double> Time(absl::FunctionRef<absl::Status()> work);

  // Kernel launchers return it: an error of the launch just made, named after the kernel.
  absl::Status LaunchStatus(const char* kernel) const;

  // Untyped, for DeviceArray.
  absl::StatusOr<void*> Allocate(size_t bytes);
  void Free(void* data, size_t bytes);
  absl::StatusOr<void*> AllocateHost(size_t bytes);  // for HostArray
  void FreeHost(void* data, size_t bytes);
  absl::Status CopyToDevice(const void* host, size_t bytes, void* device);
  absl::Status CopyToHost(const void* device, size_t bytes, void* host);  // finished on return
  absl::Status CopyOnDevice(const void* from, size_t bytes, void* to);
  absl::Status SetZero(void* device, size_t bytes);

 private:
  Queue() = default;

  DeviceKind kind_ = DeviceKind::kCpu;
  CUstream_st* stream_ = nullptr;
  int num_multiprocessors_ = 0;
  int compute_capability_ = 0;
};

template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;  // empty, of no queue
  DeviceArray(DeviceArray&& other) noexcept { *this = std::move(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(queue_, other.queue_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceArray() {
    if (data_ != nullptr) queue_->Free(data_, size_ * sizeof(T));
  }

  static absl::StatusOr<DeviceArray> Zeros(Queue* queue, size_t size) {
    DeviceArray array;
    array.queue_ = queue;
    if (size == 0) return array;
    LETHE_ASSIGN_OR_RETURN(void* data, queue->Allocate(size * sizeof(T)));
    array.data_ = static_cast<T*>(data);
    array.size_ = size;
    return array;
  }
  static absl::StatusOr<DeviceArray> From(Queue* queue, absl::Span<const T> values) {
    LETHE_ASSIGN_OR_RETURN(DeviceArray array, Zeros(queue, values.size()));
    LETHE_RETURN_IF_ERROR(array.Set(values));
    return array;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // values.size() = size(). The host's copy may be reused on return.
  absl::Status Set(absl::Span<const T> values) {
    LETHE_CHECK(values.size() == size_);
    if (size_ == 0) return absl::OkStatus();
    return queue_->CopyToDevice(values.data(), size_ * sizeof(T), data_);
  }
  // Waits for the queue.
  absl::StatusOr<std::vector<T>> Get() const {
    std::vector<T> values(size_);
    if (size_ > 0) {
      LETHE_RETURN_IF_ERROR(queue_->CopyToHost(data_, size_ * sizeof(T), values.data()));
    }
    return values;
  }

 private:
  Queue* queue_ = nullptr;
  T* data_ = nullptr;
  size_t size_ = 0;
};

template <typename T>
class HostArray {
 public:
  HostArray() = default;  // empty, of no queue
  HostArray(HostArray&& other) noexcept { *this = std::move(other); }
  HostArray& operator=(HostArray&& other) noexcept {
    std::swap(queue_, other.queue_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~HostArray() {
    if (data_ != nullptr) queue_->FreeHost(data_, size_ * sizeof(T));
  }

  static absl::StatusOr<HostArray> Zeros(Queue* queue, size_t size) {
    HostArray array;
    array.queue_ = queue;
    if (size == 0) return array;
    LETHE_ASSIGN_OR_RETURN(void* data, queue->AllocateHost(size * sizeof(T)));
    array.data_ = static_cast<T*>(data);
    array.size_ = size;
    return array;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Queue* queue_ = nullptr;
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_QUEUE_H_
