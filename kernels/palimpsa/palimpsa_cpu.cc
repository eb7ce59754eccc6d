#include <cstddef>

#include "hwy/highway.h"

#include "kernels/base/check.h"
#include "kernels/math/math.h"
#include "kernels/math/vector_math.h"
#include "kernels/palimpsa/palimpsa.h"

namespace lethe {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanes = 8;
using Tag = hn::FixedTag<float, kLanes>;
using Vec = hn::Vec<Tag>;

// Tokens per pass over the state: a row of M and I stays in the nearest cache for that many tokens.
constexpr size_t kPassTokens = 64;

struct Sizes {
  size_t num_heads;
  size_t key_dim;
  size_t value_dim;
};

// One row (one value index) of M and I over a pass of tokens. q, k and value, precision, out point
// at the head's and row's first token; strides are in floats from token to token.
struct Row {
  const float* q;  // null: no reads
  const float* k;
  const float* value;
  const float* precision;  // null: b = 0
  float* m;
  float* i_bar;
  float* out;  // null: no reads
};

// The write of one token into eight elements.
template <bool kHasPrecision>
HWY_INLINE void WriteElement(Vec decay, Vec value, Vec precision, Vec k, Vec* m, Vec* i_bar) {
  *m = hn::MulAdd(value, k, hn::Mul(decay, *m));
  if constexpr (kHasPrecision) {
    *i_bar = hn::MulAdd(precision, hn::Mul(k, k), hn::Mul(decay, *i_bar));
  }
}

// The share of eight elements in a read.
template <bool kHasPrecision>
HWY_INLINE Vec ReadElement(Vec m, Vec i_bar, Vec q, Vec sum) {
  if constexpr (!kHasPrecision) return hn::MulAdd(m, q, sum);
  return hn::MulAdd(hn::Div(m, hn::Add(i_bar, hn::Set(Tag(), 1.0f))), q, sum);
}

template <bool kHasPrecision, bool kHasRead>
void FoldRow(const Row& row, const Sizes& sizes, const float* decays, size_t count,
             float read_scale) {
  const Tag d;
  const size_t key_stride = sizes.num_heads * sizes.key_dim;
  const size_t value_stride = sizes.num_heads * sizes.value_dim;
  for (size_t t = 0; t < count; ++t) {
    const float* k = row.k + t * key_stride;
    const Vec decay = hn::Set(d, decays[t]);
    const Vec value = hn::Set(d, row.value[t * value_stride]);
    const Vec precision = kHasPrecision ? hn::Set(d, row.precision[t * value_stride]) : hn::Zero(d);
    Vec sum = hn::Zero(d);
    for (size_t j = 0; j < sizes.key_dim; j += kLanes) {
      Vec m = hn::LoadU(d, row.m + j);
      Vec i_bar = kHasPrecision ? hn::LoadU(d, row.i_bar + j) : hn::Zero(d);
      WriteElement<kHasPrecision>(decay, value, precision, hn::LoadU(d, k + j), &m, &i_bar);
      if constexpr (kHasRead) {
        const Vec q = hn::LoadU(d, row.q + t * key_stride + j);
        sum = ReadElement<kHasPrecision>(m, i_bar, q, sum);
      }
      hn::StoreU(m, d, row.m + j);
      if constexpr (kHasPrecision) hn::StoreU(i_bar, d, row.i_bar + j);
    }
    if constexpr (kHasRead) row.out[t * value_stride] = read_scale * simd::SumTree(sum);
  }
}

void CheckSizes(const PalimpsaShape& shape, const PalimpsaInputs& inputs, int64_t count,
                absl::Span<const float> m, absl::Span<const float> i_bar) {
  LETHE_CHECK(shape.num_heads > 0 && shape.key_dim > 0 && shape.value_dim > 0 && count >= 0);
  LETHE_CHECK(shape.key_dim % static_cast<int64_t>(kLanes) == 0);
  const auto heads = static_cast<size_t>(count * shape.num_heads);
  const size_t num_keys = heads * static_cast<size_t>(shape.key_dim);
  const size_t num_values = heads * static_cast<size_t>(shape.value_dim);
  LETHE_CHECK(inputs.k.size() == num_keys && inputs.value.size() == num_values);
  LETHE_CHECK(inputs.log_decay.size() == heads);
  LETHE_CHECK(m.size() == static_cast<size_t>(shape.num_heads * shape.value_dim * shape.key_dim));
  LETHE_CHECK(i_bar.empty() || i_bar.size() == m.size());
  LETHE_CHECK(inputs.precision.size() == (i_bar.empty() ? 0 : num_values));
}

// out empty: no reads.
template <bool kHasRead>
void Fold(const PalimpsaShape& shape, const PalimpsaInputs& inputs, int64_t count, float read_scale,
          absl::Span<float> m, absl::Span<float> i_bar, absl::Span<float> out) {
  CheckSizes(shape, inputs, count, m, i_bar);
  const Sizes sizes{static_cast<size_t>(shape.num_heads), static_cast<size_t>(shape.key_dim),
                    static_cast<size_t>(shape.value_dim)};
  const auto num_tokens = static_cast<size_t>(count);
  for (size_t begin = 0; begin < num_tokens; begin += kPassTokens) {
    const size_t pass = num_tokens - begin < kPassTokens ? num_tokens - begin : kPassTokens;
    for (size_t h = 0; h < sizes.num_heads; ++h) {
      float decays[kPassTokens];
      for (size_t t = 0; t < pass; ++t) {
        decays[t] = Exp(inputs.log_decay[(begin + t) * sizes.num_heads + h]);
      }
      const size_t key_index = (begin * sizes.num_heads + h) * sizes.key_dim;
      for (size_t i = 0; i < sizes.value_dim; ++i) {
        const size_t value_index = (begin * sizes.num_heads + h) * sizes.value_dim + i;
        const size_t state_index = (h * sizes.value_dim + i) * sizes.key_dim;
        const bool has_precision = !i_bar.empty();
        const Row row{kHasRead ? inputs.q.data() + key_index : nullptr,
                      inputs.k.data() + key_index,
                      inputs.value.data() + value_index,
                      has_precision ? inputs.precision.data() + value_index : nullptr,
                      m.data() + state_index,
                      has_precision ? i_bar.data() + state_index : nullptr,
                      kHasRead ? out.data() + value_index : nullptr};
        if (has_precision) {
          FoldRow<true, kHasRead>(row, sizes, decays, pass, read_scale);
        } else {
          FoldRow<false, kHasRead>(row, sizes, decays, pass, read_scale);
        }
      }
    }
  }
}

}  // namespace

void PalimpsaRecurrent(const PalimpsaShape& shape, const PalimpsaInputs& inputs, int64_t count,
                       float read_scale, absl::Span<float> m, absl::Span<float> i_bar,
                       absl::Span<float> out) {
  LETHE_CHECK(inputs.q.size() == inputs.k.size() && out.size() == inputs.value.size());
  Fold<true>(shape, inputs, count, read_scale, m, i_bar, out);
}

void PalimpsaWrite(const PalimpsaShape& shape, const PalimpsaInputs& inputs, int64_t count,
                   absl::Span<float> m, absl::Span<float> i_bar) {
  Fold<false>(shape, inputs, count, 0.0f, m, i_bar, {});
}

}  // namespace lethe
