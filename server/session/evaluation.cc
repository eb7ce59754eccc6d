#include "server/session/evaluation.h"

#include <algorithm>
#include <vector>

#include "kernels/base/byte_io.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/wiped.h"
#include "memory/memory.h"
#include "server/model/numerics_id.h"

namespace lethe {

absl::Status EvaluateRange(const Inputs& inputs, int64_t first, int64_t end, int64_t head,
                           ModelState* state, SnapshotLadder* ladder,
                           const Checkpoint& checkpoint) {
  LETHE_CHECK(state->num_tokens() == first && end <= inputs.size());
  std::vector<int32_t, WipingAllocator<int32_t>> vocab_ids(kChunkTokens);
  for (int64_t rank = first; rank < end;) {
    if (checkpoint) LETHE_RETURN_IF_ERROR(checkpoint());
    const int64_t boundary = rank - rank % kChunkTokens + kChunkTokens;
    const int64_t stop = std::min(boundary, end);
    const auto count = static_cast<size_t>(stop - rank);
    for (size_t i = 0; i < count; ++i) {
      vocab_ids[i] = inputs.at(rank + static_cast<int64_t>(i)).vocab_id;
    }
    LETHE_RETURN_IF_ERROR(state->Evaluate(absl::MakeConstSpan(vocab_ids).first(count)));
    rank = stop;
    if (rank == boundary && rank % state->snapshot_tokens() == 0 && IsOnLadder(rank, head)) {
      ladder->Insert(state->Snapshot());
    }
  }
  return absl::OkStatus();
}

audit::StateParts DigestPartsOf(const ModelState& state,
                                absl::Span<const int64_t> repetition_counts) {
  const auto as_view = [](const audit::Sha256Digest& digest) {
    return audit::AsStringView(digest);
  };
  audit::StateParts parts;
  parts.Add("model", as_view(state.model().digest()));
  const Numerics numerics = state.model().numerics();
  parts.Add("numerics", as_view(numerics.id));
  parts.Add("device", numerics.device_kind);
  state.AppendDigestParts(&parts);
  ByteWriter counts;
  for (size_t vocab_id = 0; vocab_id < repetition_counts.size(); ++vocab_id) {
    if (repetition_counts[vocab_id] == 0) continue;
    counts.U64(vocab_id);
    counts.I64(repetition_counts[vocab_id]);
  }
  parts.Add("sampler.repetition_counts", counts.bytes());
  return parts;
}

}  // namespace lethe
