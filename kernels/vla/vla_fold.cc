#include "kernels/vla/vla_fold.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/on_cuda.h"
#include "kernels/vla/vla_fold_cuda.h"

namespace lethe {
namespace {

void CheckBatch(const VlaOptions& options, const VlaBatch& batch) {
  LETHE_CHECK(options.num_heads > 0 && options.key_dim > 0 && options.value_dim > 0);
  LETHE_CHECK(options.key_dim % 8 == 0 && options.value_dim % 8 == 0);
  LETHE_CHECK(batch.num_sequences >= 0 && batch.max_length >= 0);
  LETHE_CHECK(batch.num_tokens >= 0 && batch.num_tokens <= batch.num_sequences * batch.max_length);
  if (batch.num_tokens == 0) return;
  LETHE_CHECK(batch.offsets != nullptr && batch.slots != nullptr && batch.step_counts != nullptr);
  LETHE_CHECK(batch.k != nullptr && batch.v != nullptr);
  LETHE_CHECK((batch.write_direction != nullptr) == (options.variant == VlaVariant::kVla));
  LETHE_CHECK(batch.a != nullptr && batch.s != nullptr);
  LETHE_CHECK((batch.key_sum != nullptr) == (options.read_norm == VlaReadNorm::kPaper));
  LETHE_CHECK(batch.out == nullptr || batch.q != nullptr);
}

void FoldOnHost(const VlaOptions& options, const VlaBatch& batch) {
  const auto num_heads = static_cast<size_t>(options.num_heads);
  const auto key_dim = static_cast<size_t>(options.key_dim);
  const auto value_dim = static_cast<size_t>(options.value_dim);
  for (int64_t b = 0; b < batch.num_sequences; ++b) {
    const int64_t count = batch.offsets[b + 1] - batch.offsets[b];
    LETHE_CHECK(count >= 0 && count <= batch.max_length);
    const auto size = static_cast<size_t>(count);
    const auto first = static_cast<size_t>(batch.offsets[b]);
    const auto slot = static_cast<size_t>(batch.slots[b]);
    const size_t key_index = first * num_heads * key_dim;
    const size_t num_keys = size * num_heads * key_dim;
    const size_t value_index = first * num_heads * value_dim;
    const size_t num_values = size * num_heads * value_dim;
    const auto part = [](auto* x, size_t index, size_t length) {
      return x == nullptr ? absl::Span<std::remove_pointer_t<decltype(x)>>()
                          : absl::MakeSpan(x + index, length);
    };
    const VlaInputs inputs{part(batch.q, key_index, num_keys), part(batch.k, key_index, num_keys),
                           part(batch.v, value_index, num_values),
                           part(batch.write_direction, key_index, num_keys)};
    const size_t a_size = num_heads * key_dim * key_dim;
    const size_t s_size = num_heads * value_dim * key_dim;
    const VlaState state{part(batch.a, slot * a_size, a_size), part(batch.s, slot * s_size, s_size),
                         part(batch.key_sum, slot * num_heads * key_dim, num_heads * key_dim)};
    if (batch.out == nullptr) {
      VlaWrite(options, inputs, count, batch.step_counts[b], state);
    } else {
      VlaRecurrent(options, inputs, count, batch.step_counts[b], state,
                   part(batch.out, value_index, num_values));
    }
  }
}

}  // namespace

absl::Status VlaFold(Queue* queue, const VlaOptions& options, const VlaBatch& batch) {
  CheckBatch(options, batch);
  if (batch.num_tokens == 0) return absl::OkStatus();
  if (queue->kind() == DeviceKind::kCpu) {
    FoldOnHost(options, batch);
    return absl::OkStatus();
  }
  if (options.key_dim > kVlaFoldMaxDim || options.value_dim > kVlaFoldMaxDim) {
    return absl::UnimplementedError(absl::StrCat("VLA on CUDA: key_dim ", options.key_dim,
                                                 " and value_dim ", options.value_dim,
                                                 ", each may be at most ", kVlaFoldMaxDim));
  }
  if (batch.max_length == 1) return LETHE_ON_CUDA(VlaFoldStepCuda(queue, options, batch));
  return LETHE_ON_CUDA(VlaFoldCuda(queue, options, batch));
}

}  // namespace lethe
