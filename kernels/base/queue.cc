#include "kernels/base/queue.h"

#include <chrono>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/held_memory.h"
#include "kernels/base/mutex.h"
#include "kernels/base/queue_cuda.h"

namespace lethe {
namespace {

constexpr std::align_val_t kAlignment{256};

absl::StatusOr<void*> AllocateOnHost(size_t bytes) {
  void* data = ::operator new(bytes, kAlignment, std::nothrow);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no host memory for ", bytes, " bytes"));
  }
  std::memset(data, 0, bytes);
  return data;
}

void FreeOnHost(void* data, size_t bytes) {
  explicit_bzero(data, bytes);
  ::operator delete(data, kAlignment);
}

struct Held {
  Mutex mutex;
  // An address may be one of a device and one of the host.
  std::map<std::pair<const void*, bool>, HeldBlock> blocks ABSL_GUARDED_BY(mutex);
};

Held& AllHeld() {
  static Held* const held = new Held;
  return *held;
}

absl::StatusOr<void*> Hold(absl::StatusOr<void*> data, size_t bytes, const Queue* queue,
                           bool on_device) {
  if (!data.ok()) return data;
  Held& held = AllHeld();
  MutexLock lock(&held.mutex);
  held.blocks[{*data, on_device}] = {*data, bytes, queue, on_device};
  return data;
}

void LetGo(const void* data, bool on_device) {
  Held& held = AllHeld();
  MutexLock lock(&held.mutex);
  held.blocks.erase({data, on_device});
}

}  // namespace

std::vector<HeldBlock> HeldMemory() {
  Held& held = AllHeld();
  MutexLock lock(&held.mutex);
  std::vector<HeldBlock> blocks;
  for (const auto& [place, block] : held.blocks) blocks.push_back(block);
  return blocks;
}

absl::StatusOr<std::unique_ptr<Queue>> Queue::Create(DeviceKind kind) {
  std::unique_ptr<Queue> queue(new Queue);
  if (kind == DeviceKind::kCuda) {
    LETHE_ASSIGN_OR_RETURN(const CudaQueue cuda, CreateCudaQueue());
    queue->stream_ = cuda.stream;
    queue->num_multiprocessors_ = cuda.num_multiprocessors;
    queue->compute_capability_ = cuda.compute_capability;
    queue->kind_ = kind;  // only now is there a stream to destroy
  }
  return queue;
}

Queue::~Queue() {
  if (kind_ == DeviceKind::kCuda) DestroyCudaQueue(stream_);
}

absl::Status Queue::Finish() {
  return kind_ == DeviceKind::kCuda ? CudaFinish(stream_) : absl::OkStatus();
}

absl::StatusOr<double> Queue::Time(absl::FunctionRef<absl::Status()> work) {
  if (kind_ == DeviceKind::kCuda) return CudaTime(stream_, work);
  const auto begin = std::chrono::steady_clock::now();
  LETHE_RETURN_IF_ERROR(work());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

absl::Status Queue::LaunchStatus(const char* kernel) const {
  return kind_ == DeviceKind::kCuda ? CudaLaunchStatus(kernel) : absl::OkStatus();
}

absl::StatusOr<void*> Queue::Allocate(size_t bytes) {
  LETHE_CHECK(bytes > 0);
  return Hold(kind_ == DeviceKind::kCuda ? CudaAllocate(stream_, bytes) : AllocateOnHost(bytes),
              bytes, this, /*on_device=*/true);
}

void Queue::Free(void* data, size_t bytes) {
  LetGo(data, /*on_device=*/true);
  if (kind_ == DeviceKind::kCuda) {
    CudaFree(stream_, data, bytes);
    return;
  }
  FreeOnHost(data, bytes);
}

absl::StatusOr<void*> Queue::AllocateHost(size_t bytes) {
  LETHE_CHECK(bytes > 0);
  return Hold(kind_ == DeviceKind::kCuda ? CudaAllocateHost(bytes) : AllocateOnHost(bytes), bytes,
              this, /*on_device=*/false);
}

void Queue::FreeHost(void* data, size_t bytes) {
  LetGo(data, /*on_device=*/false);
  if (kind_ == DeviceKind::kCuda) {
    CudaFreeHost(stream_, data, bytes);
    return;
  }
  FreeOnHost(data, bytes);
}

absl::Status Queue::CopyToDevice(const void* host, size_t bytes, void* device) {
  if (kind_ == DeviceKind::kCuda) return CudaCopyToDevice(stream_, host, bytes, device);
  std::memcpy(device, host, bytes);
  return absl::OkStatus();
}

absl::Status Queue::CopyToHost(const void* device, size_t bytes, void* host) {
  if (kind_ == DeviceKind::kCuda) return CudaCopyToHost(stream_, device, bytes, host);
  std::memcpy(host, device, bytes);
  return absl::OkStatus();
}

absl::Status Queue::CopyOnDevice(const void* from, size_t bytes, void* to) {
  if (kind_ == DeviceKind::kCuda) return CudaCopyOnDevice(stream_, from, bytes, to);
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status Queue::SetZero(void* device, size_t bytes) {
  if (kind_ == DeviceKind::kCuda) return CudaSetZero(stream_, device, bytes);
  std::memset(device, 0, bytes);
  return absl::OkStatus();
}

}  // namespace lethe
