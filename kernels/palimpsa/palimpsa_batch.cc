#include "kernels/palimpsa/palimpsa_batch.h"

#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

#include "kernels/base/on_cuda.h"
#include "kernels/palimpsa/palimpsa_cuda.h"

namespace lethe {
namespace {

constexpr int64_t kDimStep = 8;
constexpr int64_t kDimMax = 128;
constexpr uintptr_t kAlignment = 16;
constexpr int64_t kTokensMax = std::numeric_limits<int32_t>::max();

bool IsDim(int64_t dim) { return dim >= kDimStep && dim <= kDimMax && dim % kDimStep == 0; }

absl::Status CheckArrays(const PalimpsaBatch& batch) {
  if ((batch.q == nullptr) != (batch.out == nullptr)) {
    return absl::InvalidArgumentError("q without out, or out without q");
  }
  if ((batch.precision == nullptr) != (batch.i_bar == nullptr)) {
    return absl::InvalidArgumentError("precision without i_bar, or i_bar without precision");
  }
  for (const void* needed :
       {static_cast<const void*>(batch.k), static_cast<const void*>(batch.m),
        static_cast<const void*>(batch.value), static_cast<const void*>(batch.log_decay),
        static_cast<const void*>(batch.offsets), static_cast<const void*>(batch.slots)}) {
    if (needed == nullptr) return absl::InvalidArgumentError("an array is missing");
  }
  for (const float* array :
       {batch.q, batch.k, batch.value, batch.log_decay, batch.precision,
        static_cast<const float*>(batch.m), static_cast<const float*>(batch.i_bar),
        static_cast<const float*>(batch.out)}) {
    if (reinterpret_cast<uintptr_t>(array) % kAlignment != 0) {
      return absl::InvalidArgumentError("an array is not aligned to 16 bytes");
    }
  }
  return absl::OkStatus();
}

absl::Status Check(const PalimpsaShape& shape, const PalimpsaBatch& batch) {
  if (shape.num_heads < 1 || !IsDim(shape.key_dim) || !IsDim(shape.value_dim)) {
    return absl::InvalidArgumentError(
        absl::StrCat("want at least one head and dimensions that are multiples of ", kDimStep,
                     " up to ", kDimMax, ", got ", shape.num_heads, " heads, key_dim ",
                     shape.key_dim, ", value_dim ", shape.value_dim));
  }
  if (batch.num_sequences < 0 || batch.num_tokens < 0 || batch.num_tokens > kTokensMax ||
      batch.max_length < 0 || batch.max_length > kTokensMax || batch.num_sequences > kTokensMax ||
      batch.max_length * batch.num_sequences < batch.num_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("got ", batch.num_sequences,
                                                   " sequences of at most ", batch.max_length,
                                                   " tokens, ", batch.num_tokens, " in all"));
  }
  return absl::OkStatus();
}

void FoldCpu(const PalimpsaShape& shape, const PalimpsaBatch& batch, float read_scale) {
  const auto state_size = static_cast<size_t>(shape.num_heads * shape.value_dim * shape.key_dim);
  for (int64_t s = 0; s < batch.num_sequences; ++s) {
    const int64_t first = batch.offsets[s];
    const int64_t count = batch.offsets[s + 1] - first;
    if (count == 0) continue;
    const auto part = [&](const auto* data, int64_t per_token) {
      return data == nullptr ? absl::Span<decltype(*data + 0) const>()
                             : absl::MakeConstSpan(data + first * per_token,
                                                   static_cast<size_t>(count * per_token));
    };
    const int64_t keys = shape.num_heads * shape.key_dim;
    const int64_t values = shape.num_heads * shape.value_dim;
    const PalimpsaInputs inputs{part(batch.q, keys), part(batch.k, keys), part(batch.value, values),
                                part(batch.log_decay, shape.num_heads),
                                part(batch.precision, values)};
    const size_t at = static_cast<size_t>(batch.slots[s]) * state_size;
    const absl::Span<float> m(batch.m + at, state_size);
    const absl::Span<float> i_bar = batch.i_bar == nullptr
                                        ? absl::Span<float>()
                                        : absl::Span<float>(batch.i_bar + at, state_size);
    if (batch.q == nullptr) {
      PalimpsaWrite(shape, inputs, count, m, i_bar);
    } else {
      PalimpsaRecurrent(
          shape, inputs, count, read_scale, m, i_bar,
          absl::MakeSpan(batch.out + first * values, static_cast<size_t>(count * values)));
    }
  }
}

}  // namespace

absl::Status PalimpsaFold(Queue* queue, const PalimpsaShape& shape, const PalimpsaBatch& batch,
                          float read_scale) {
  LETHE_RETURN_IF_ERROR(Check(shape, batch));
  if (batch.num_tokens == 0) return absl::OkStatus();
  LETHE_RETURN_IF_ERROR(CheckArrays(batch));
  if (queue->kind() == DeviceKind::kCuda) {
    return LETHE_ON_CUDA(PalimpsaFoldCuda(queue, shape, batch, read_scale, PalimpsaTuning()));
  }
  FoldCpu(shape, batch, read_scale);
  return absl::OkStatus();
}

}  // namespace lethe
