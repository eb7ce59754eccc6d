#include <algorithm>
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

// A head's share of a pass of tokens. The inputs point at the first token's; from token to token
// their stride is key_stride or value_stride floats. m and i_bar are the head's [V][K].
struct HeadPass {
  const float* q;  // null: no reads
  const float* k;
  const float* value;
  const float* precision;  // null: b = 0
  float* m;
  float* i_bar;
  float* out;  // null: no reads
  size_t key_stride;
  size_t value_stride;
  size_t count;
  float decays[kPassTokens];
};

// The write of one token into eight elements.
template <bool kHasPrecision>
HWY_INLINE void WriteElement(Vec decay, Vec value, Vec precision, Vec k, Vec k_squared, Vec* m,
                             Vec* i_bar) {
  *m = hn::MulAdd(value, k, hn::Mul(decay, *m));
  if constexpr (kHasPrecision) *i_bar = hn::MulAdd(precision, k_squared, hn::Mul(decay, *i_bar));
}

// The share of eight elements in a read.
template <bool kHasPrecision>
HWY_INLINE Vec ReadElement(Vec m, Vec i_bar, Vec q, Vec sum) {
  if constexpr (!kHasPrecision) return hn::MulAdd(m, q, sum);
  return hn::MulAdd(hn::Div(m, hn::Add(i_bar, hn::Set(Tag(), 1.0f))), q, sum);
}

// Writes and reads row i (one value index) of M and I.
template <bool kHasPrecision>
void StepRow(const HeadPass& pass, size_t key_dim, size_t i, float read_scale) {
  const Tag d;
  float* row_m = pass.m + i * key_dim;
  float* row_i_bar = kHasPrecision ? pass.i_bar + i * key_dim : nullptr;
  for (size_t t = 0; t < pass.count; ++t) {
    const size_t value_index = t * pass.value_stride + i;
    const float* q = pass.q + t * pass.key_stride;
    const float* k = pass.k + t * pass.key_stride;
    const Vec decay = hn::Set(d, pass.decays[t]);
    const Vec value = hn::Set(d, pass.value[value_index]);
    const Vec precision = kHasPrecision ? hn::Set(d, pass.precision[value_index]) : hn::Zero(d);
    Vec sum = hn::Zero(d);
    for (size_t j = 0; j < key_dim; j += kLanes) {
      Vec m = hn::LoadU(d, row_m + j);
      Vec i_bar = kHasPrecision ? hn::LoadU(d, row_i_bar + j) : hn::Zero(d);
      const Vec key = hn::LoadU(d, k + j);
      WriteElement<kHasPrecision>(decay, value, precision, key, hn::Mul(key, key), &m, &i_bar);
      sum = ReadElement<kHasPrecision>(m, i_bar, hn::LoadU(d, q + j), sum);
      hn::StoreU(m, d, row_m + j);
      if constexpr (kHasPrecision) hn::StoreU(i_bar, d, row_i_bar + j);
    }
    pass.out[value_index] = read_scale * simd::SumTree(sum);
  }
}

// Writes kVectors vectors of columns from `first` on, of every row. They stay in registers for all
// tokens; what all rows share, k and k^2, is laid out in the order of use.
template <bool kHasPrecision, size_t kVectors>
void WriteColumns(const HeadPass& pass, const Sizes& sizes, size_t first) {
  const Tag d;
  constexpr size_t kColumns = kVectors * kLanes;
  float keys[kPassTokens][2][kColumns];
  for (size_t t = 0; t < pass.count; ++t) {
    for (size_t n = 0; n < kColumns; n += kLanes) {
      const Vec k = hn::LoadU(d, pass.k + t * pass.key_stride + first + n);
      hn::StoreU(k, d, keys[t][0] + n);
      hn::StoreU(hn::Mul(k, k), d, keys[t][1] + n);
    }
  }
  for (size_t i = 0; i < sizes.value_dim; ++i) {
    float* row_m = pass.m + i * sizes.key_dim + first;
    float* row_i_bar = kHasPrecision ? pass.i_bar + i * sizes.key_dim + first : nullptr;
    Vec m[kVectors];
    Vec i_bar[kVectors];
    for (size_t n = 0; n < kVectors; ++n) {
      m[n] = hn::LoadU(d, row_m + n * kLanes);
      i_bar[n] = kHasPrecision ? hn::LoadU(d, row_i_bar + n * kLanes) : hn::Zero(d);
    }
    for (size_t t = 0; t < pass.count; ++t) {
      const size_t value_index = t * pass.value_stride + i;
      const Vec decay = hn::Set(d, pass.decays[t]);
      const Vec value = hn::Set(d, pass.value[value_index]);
      const Vec precision = kHasPrecision ? hn::Set(d, pass.precision[value_index]) : hn::Zero(d);
      for (size_t n = 0; n < kVectors; ++n) {
        WriteElement<kHasPrecision>(decay, value, precision, hn::LoadU(d, keys[t][0] + n * kLanes),
                                    hn::LoadU(d, keys[t][1] + n * kLanes), &m[n], &i_bar[n]);
      }
    }
    for (size_t n = 0; n < kVectors; ++n) {
      hn::StoreU(m[n], d, row_m + n * kLanes);
      if constexpr (kHasPrecision) hn::StoreU(i_bar[n], d, row_i_bar + n * kLanes);
    }
  }
}

template <bool kHasPrecision>
void FoldHead(const HeadPass& pass, const Sizes& sizes, float read_scale) {
  if (pass.out != nullptr) {
    for (size_t i = 0; i < sizes.value_dim; ++i) {
      StepRow<kHasPrecision>(pass, sizes.key_dim, i, read_scale);
    }
    return;
  }
  constexpr size_t kVectors = 4;
  size_t first = 0;
  for (; first + kVectors * kLanes <= sizes.key_dim; first += kVectors * kLanes) {
    WriteColumns<kHasPrecision, kVectors>(pass, sizes, first);
  }
  for (; first < sizes.key_dim; first += kLanes) WriteColumns<kHasPrecision, 1>(pass, sizes, first);
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
void Fold(const PalimpsaShape& shape, const PalimpsaInputs& inputs, int64_t count, float read_scale,
          absl::Span<float> m, absl::Span<float> i_bar, absl::Span<float> out) {
  CheckSizes(shape, inputs, count, m, i_bar);
  const Sizes sizes{static_cast<size_t>(shape.num_heads), static_cast<size_t>(shape.key_dim),
                    static_cast<size_t>(shape.value_dim)};
  const bool has_precision = !i_bar.empty();
  const bool has_read = !out.empty();
  const auto num_tokens = static_cast<size_t>(count);
  for (size_t begin = 0; begin < num_tokens; begin += kPassTokens) {
    for (size_t h = 0; h < sizes.num_heads; ++h) {
      const size_t key_index = (begin * sizes.num_heads + h) * sizes.key_dim;
      const size_t value_index = (begin * sizes.num_heads + h) * sizes.value_dim;
      const size_t state_index = h * sizes.value_dim * sizes.key_dim;
      HeadPass pass{has_read ? inputs.q.data() + key_index : nullptr,
                    inputs.k.data() + key_index,
                    inputs.value.data() + value_index,
                    has_precision ? inputs.precision.data() + value_index : nullptr,
                    m.data() + state_index,
                    has_precision ? i_bar.data() + state_index : nullptr,
                    has_read ? out.data() + value_index : nullptr,
                    sizes.num_heads * sizes.key_dim,
                    sizes.num_heads * sizes.value_dim,
                    std::min(num_tokens - begin, kPassTokens),
                    {}};
      for (size_t t = 0; t < pass.count; ++t) {
        pass.decays[t] = Exp(inputs.log_decay[(begin + t) * sizes.num_heads + h]);
      }
      if (has_precision) {
        FoldHead<true>(pass, sizes, read_scale);
      } else {
        FoldHead<false>(pass, sizes, read_scale);
      }
    }
  }
}

}  // namespace

void PalimpsaRecurrent(const PalimpsaShape& shape, const PalimpsaInputs& inputs, int64_t count,
                       float read_scale, absl::Span<float> m, absl::Span<float> i_bar,
                       absl::Span<float> out) {
  LETHE_CHECK(inputs.q.size() == inputs.k.size() && out.size() == inputs.value.size());
  Fold(shape, inputs, count, read_scale, m, i_bar, out);
}

void PalimpsaWrite(const PalimpsaShape& shape, const PalimpsaInputs& inputs, int64_t count,
                   absl::Span<float> m, absl::Span<float> i_bar) {
  Fold(shape, inputs, count, 0.0f, m, i_bar, {});
}

}  // namespace lethe
