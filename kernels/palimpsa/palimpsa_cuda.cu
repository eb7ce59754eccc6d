#include <limits>

#include "kernels/palimpsa/palimpsa_cuda.cuh"
#include "kernels/palimpsa/palimpsa_cuda.h"

namespace lethe {

absl::Status PalimpsaFoldCuda(Queue* queue, const PalimpsaShape& shape, const PalimpsaBatch& batch,
                              float read_scale, const PalimpsaTuning& tuning) {
  palimpsa_cuda::FoldArguments arguments{};
  arguments.batch = batch;
  arguments.num_heads = static_cast<int>(shape.num_heads);
  arguments.key_dim = static_cast<int>(shape.key_dim);
  arguments.value_dim = static_cast<int>(shape.value_dim);
  arguments.read_scale = read_scale;
  // One kernel where it suits every sequence; each takes any length.
  constexpr int kAnyLength = std::numeric_limits<int>::max();
  const bool all_short = batch.max_length <= kPalimpsaStepTokens;
  const bool all_alike = batch.num_tokens == batch.num_sequences * batch.max_length;
  arguments.min_length = all_short || all_alike ? 1 : kPalimpsaStepTokens + 1;
  arguments.max_length = kAnyLength;
  if (!all_short) {
    LETHE_RETURN_IF_ERROR(palimpsa_cuda::LaunchPrefill(queue, arguments, tuning.prefill_rows));
    if (all_alike) return absl::OkStatus();
    arguments.min_length = 1;
    arguments.max_length = kPalimpsaStepTokens;
  }
  return palimpsa_cuda::LaunchStep(queue, arguments);
}

}  // namespace lethe
