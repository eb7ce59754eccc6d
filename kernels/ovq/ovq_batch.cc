#include "kernels/ovq/ovq_batch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "kernels/base/on_cuda.h"
#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_batch_cpu.h"
#ifdef LETHE_CUDA
#include "kernels/ovq/ovq_cuda.h"
#endif

namespace lethe {
namespace {

constexpr int64_t kMaxDim = 128;
constexpr int64_t kMaxCount = int64_t{1} << 30;  // indices within a head are 32-bit on a GPU

absl::Status CheckRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ovq: ", name, " must be in [", low, ", ", high, "], got ", value));
}

absl::Status Validate(const OvqShape& shape, const OvqBatchSize& size) {
  LETHE_RETURN_IF_ERROR(CheckRange("key_dim", shape.key_dim, 8, kMaxDim));
  LETHE_RETURN_IF_ERROR(CheckRange("value_dim", shape.value_dim, 8, kMaxDim));
  if (shape.key_dim % 8 != 0 || shape.value_dim % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ovq: key_dim and value_dim must be multiples of 8, got ", shape.key_dim,
                     " and ", shape.value_dim));
  }
  LETHE_RETURN_IF_ERROR(CheckRange("max_slots", shape.max_slots, 1, kMaxCount));
  if (shape.chunk_tokens != 64 && shape.chunk_tokens != 128) {
    return absl::InvalidArgumentError(
        absl::StrCat("ovq: chunk_tokens must be 64 or 128, got ", shape.chunk_tokens));
  }
  LETHE_RETURN_IF_ERROR(CheckRange("num_heads", size.num_heads, 1, 65535));
  LETHE_RETURN_IF_ERROR(CheckRange("num_sequences", size.num_sequences, 0, 65535));
  LETHE_RETURN_IF_ERROR(CheckRange("num_tokens", size.num_tokens, 0, kMaxCount));
  LETHE_RETURN_IF_ERROR(CheckRange("max_length", size.max_length, 0, size.num_tokens));
  return CheckRange("max_tokens_after", size.max_tokens_after, size.max_length, int64_t{1} << 40);
}

}  // namespace

int64_t OvqFilledSlots(const OvqShape& shape, int64_t num_tokens) {
  const int64_t merged = num_tokens - num_tokens % shape.chunk_tokens;
  return merged == 0 ? 0 : std::max<int64_t>(1, OvqNumSlots(shape.max_slots, merged));
}

size_t OvqWorkspaceBytes(DeviceKind kind, const OvqShape& shape, const OvqBatchSize& size) {
#ifdef LETHE_CUDA
  if (kind == DeviceKind::kCuda && size.num_tokens > 0) return OvqWorkspaceBytesCuda(shape, size);
#endif
  static_cast<void>(kind);
  static_cast<void>(shape);
  static_cast<void>(size);
  return 0;
}

absl::Status OvqBatch(Queue* queue, const OvqShape& shape, const OvqBatchSize& size,
                      const OvqInputs& inputs, const OvqStates& states, float* out,
                      int32_t* assignments, const OvqWorkspace& workspace) {
  LETHE_RETURN_IF_ERROR(Validate(shape, size));
  if (size.num_tokens == 0) return absl::OkStatus();
  const size_t needed = OvqWorkspaceBytes(queue->kind(), shape, size);
  if (workspace.bytes < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("ovq: a workspace of ", needed, " bytes is needed, got ", workspace.bytes));
  }
  if (queue->kind() == DeviceKind::kCuda) {
    return LETHE_ON_CUDA(
        OvqBatchCuda(queue, shape, size, inputs, states, out, assignments, workspace));
  }
  OvqBatchCpu(shape, size, inputs, states, out, assignments);
  return absl::OkStatus();
}

}  // namespace lethe
