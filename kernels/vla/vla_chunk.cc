#include "kernels/vla/vla_chunk.h"

#include "absl/strings/str_cat.h"

#include "kernels/base/on_cuda.h"
#include "kernels/vla/vla_chunk_cpu.h"
#include "kernels/vla/vla_chunk_cuda.h"

namespace lethe {

bool VlaChunkCovers(const VlaOptions& options) {
  return !options.nudge && options.read_norm == VlaReadNorm::kRms && options.num_heads > 0 &&
         options.lambda0 > 0.0 && options.key_dim == options.value_dim &&
         (options.key_dim == 64 || options.key_dim == 128);
}

int64_t VlaChunkWorkspaceBytes(const VlaOptions& options, int64_t num_tokens) {
  if (!VlaChunkCovers(options)) return 0;
  return num_tokens / kVlaChunkTokens * options.num_heads * VlaChunkBytes(options.key_dim);
}

absl::Status VlaChunk(Queue* queue, const VlaOptions& options, const VlaChunkBatch& batch,
                      [[maybe_unused]] void* workspace, int64_t workspace_bytes) {
  if (!VlaChunkCovers(options)) {
    return absl::InvalidArgumentError(
        absl::StrCat("VLA has no chunk form for these options: K ", options.key_dim, ", V ",
                     options.value_dim, options.nudge ? ", nudge" : "",
                     options.read_norm == VlaReadNorm::kPaper ? ", the paper's read norm" : ""));
  }
  if (batch.num_sequences < 0 || batch.num_tokens < 0 || batch.num_tokens % kVlaChunkTokens != 0) {
    return absl::InvalidArgumentError(absl::StrCat("VLA chunks: got ", batch.num_tokens,
                                                   " tokens of ", batch.num_sequences,
                                                   " sequences, want multiples of 64"));
  }
  if (batch.num_sequences == 0 || batch.num_tokens == 0) return absl::OkStatus();
  const int64_t least_bytes = VlaChunkWorkspaceBytes(options, kVlaChunkTokens);
  if (workspace_bytes < least_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("VLA chunks: a workspace of ", workspace_bytes,
                                                   " bytes, want at least ", least_bytes));
  }
  if (queue->kind() == DeviceKind::kCuda) {
    return LETHE_ON_CUDA(VlaChunkCuda(queue, options, batch, workspace, workspace_bytes));
  }
  VlaChunkCpu(options, batch);
  return absl::OkStatus();
}

}  // namespace lethe
