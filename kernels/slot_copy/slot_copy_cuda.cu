#include <algorithm>

#include "kernels/slot_copy/slot_copy_cuda.h"

namespace lethe::slot_copy {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksMax = 64;  // of a part

// Words of a part; from null: zeros.
template <typename Word>
__device__ __forceinline__ void CopyWords(const std::byte* from, int64_t bytes, std::byte* to) {
  const auto* source = reinterpret_cast<const Word*>(from);
  auto* words = reinterpret_cast<Word*>(to);
  const int64_t size = bytes / static_cast<int64_t>(sizeof(Word));
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < size; i += step) {
    words[i] = source != nullptr ? source[i] : Word{};
  }
}

// grid: [16-byte words of the longest part, by kThreads, at most kBlocksMax][parts].
__global__ void __launch_bounds__(kThreads) CopyKernel(const PooledPart* parts, const Copy copy) {
  const PooledPart part = parts[blockIdx.y];
  const std::byte* from = nullptr;
  if (copy.from_image != nullptr) {
    from = copy.from_image + part.begin;
  } else if (copy.from_slot >= 0) {
    from = part.pool + copy.from_slot * part.bytes;
  }
  std::byte* to =
      copy.to_image != nullptr ? copy.to_image + part.begin : part.pool + copy.to_slot * part.bytes;
  const uintptr_t addresses = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  if ((addresses | static_cast<uintptr_t>(part.bytes)) % sizeof(uint4) == 0) {
    CopyWords<uint4>(from, part.bytes, to);
  } else {
    CopyWords<uint32_t>(from, part.bytes, to);
  }
}

}  // namespace

absl::Status SlotCopyCuda(Queue* queue, const PooledParts& parts, const Copy& copy) {
  const int64_t words = (parts.longest + 15) / 16;
  const int64_t blocks = std::min<int64_t>(kBlocksMax, (words + kThreads - 1) / kThreads);
  CopyKernel<<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(parts.num_parts)),
               kThreads, 0, queue->stream()>>>(parts.parts, copy);
  return queue->LaunchStatus("slot copy");
}

}  // namespace lethe::slot_copy
