#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "hwy/highway.h"

#include "kernels/base/check.h"
#include "kernels/math/math.h"
#include "kernels/math/vector_math.h"
#include "kernels/vla/vla.h"

namespace lethe {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanes = 8;
using Tag = hn::FixedTag<float, kLanes>;
using Vec = hn::Vec<Tag>;

// y[first ..] = sum over i of x[i] a[i][first ..], kVectors vectors of columns at a time.
template <size_t kVectors>
void ColumnSums(const float* a, const float* x, size_t size, size_t first, float* y) {
  const Tag d;
  Vec sums[kVectors];
  for (Vec& sum : sums) sum = hn::Zero(d);
  for (size_t i = 0; i < size; ++i) {
    const float* row = a + i * size + first;
    const Vec xi = hn::Set(d, x[i]);
    for (size_t n = 0; n < kVectors; ++n) {
      sums[n] = hn::MulAdd(hn::LoadU(d, row + n * kLanes), xi, sums[n]);
    }
  }
  for (size_t n = 0; n < kVectors; ++n) hn::StoreU(sums[n], d, y + first + n * kLanes);
}

// y = A x for a symmetric A: its columns are its rows, and no sum runs across lanes.
void SymmetricTimes(const float* a, const float* x, size_t size, float* y) {
  constexpr size_t kTile = 8;
  size_t first = 0;
  for (; first + kTile * kLanes <= size; first += kTile * kLanes) {
    ColumnSums<kTile>(a, x, size, first, y);
  }
  for (; first < size; first += kLanes) ColumnSums<1>(a, x, size, first, y);
}

// A -= w w^T in kVectors vectors of columns from `first` on, and y[p] = A x[p] there as ColumnSums.
// The product of both factors is exact inside the fma, so A stays symmetric.
template <size_t kProducts, size_t kVectors>
void SubtractOuterColumns(const float* w, const float* const* x, size_t size, size_t first,
                          float* a, float* const* y) {
  const Tag d;
  Vec sums[kProducts][kVectors];
  for (auto& product : sums) {
    for (Vec& sum : product) sum = hn::Zero(d);
  }
  for (size_t i = 0; i < size; ++i) {
    float* row = a + i * size + first;
    const Vec wi = hn::Set(d, w[i]);
    Vec xi[kProducts];
    for (size_t p = 0; p < kProducts; ++p) xi[p] = hn::Set(d, x[p][i]);
    for (size_t n = 0; n < kVectors; ++n) {
      const Vec wj = hn::LoadU(d, w + first + n * kLanes);
      const Vec element = hn::NegMulAdd(wi, wj, hn::LoadU(d, row + n * kLanes));
      hn::StoreU(element, d, row + n * kLanes);
      for (size_t p = 0; p < kProducts; ++p) {
        sums[p][n] = hn::MulAdd(element, xi[p], sums[p][n]);
      }
    }
  }
  for (size_t p = 0; p < kProducts; ++p) {
    for (size_t n = 0; n < kVectors; ++n) {
      hn::StoreU(sums[p][n], d, y[p] + first + n * kLanes);
    }
  }
}

template <size_t kProducts>
void SubtractOuter(const float* w, const float* const* x, size_t size, float* a, float* const* y) {
  constexpr size_t kVectors = kProducts == 2 ? 4 : 8;  // about eight sums in flight
  size_t first = 0;
  for (; first + kVectors * kLanes <= size; first += kVectors * kLanes) {
    SubtractOuterColumns<kProducts, kVectors>(w, x, size, first, a, y);
  }
  for (; first < size; first += kLanes) {
    SubtractOuterColumns<kProducts, 1>(w, x, size, first, a, y);
  }
}

HWY_INLINE float RowDot(const float* row, const float* x, size_t size) {
  const Tag d;
  Vec sum = hn::Zero(d);
  for (size_t j = 0; j < size; j += kLanes) {
    sum = hn::MulAdd(hn::LoadU(d, row + j), hn::LoadU(d, x + j), sum);
  }
  return simd::SumTree(sum);
}

// The dot products of eight rows with x, each as RowDot.
HWY_INLINE Vec EightRowDots(const float* rows, const float* x, size_t size) {
  const Tag d;
  const Vec zero = hn::Zero(d);
  Vec sums[kLanes] = {zero, zero, zero, zero, zero, zero, zero, zero};
  for (size_t j = 0; j < size; j += kLanes) {
    const Vec xj = hn::LoadU(d, x + j);
    for (size_t r = 0; r < kLanes; ++r) {
      sums[r] = hn::MulAdd(hn::LoadU(d, rows + r * size + j), xj, sums[r]);
    }
  }
  return simd::SumTrees(sums);
}

// rows[r] += errors[r] alpha, kRows of them; adds their products with q to sums (q null: does not).
template <size_t kRows, bool kHasRead>
HWY_INLINE void WriteRows(const float* errors, const float* alpha, const float* q, size_t size,
                          float* rows, Vec* sums) {
  const Tag d;
  for (size_t j = 0; j < size; j += kLanes) {
    const Vec aj = hn::LoadU(d, alpha + j);
    for (size_t r = 0; r < kRows; ++r) {
      float* row = rows + r * size + j;
      const Vec s = hn::MulAdd(hn::Set(d, errors[r]), aj, hn::LoadU(d, row));
      hn::StoreU(s, d, row);
      if constexpr (kHasRead) sums[r] = hn::MulAdd(s, hn::LoadU(d, q + j), sums[r]);
    }
  }
}

// Eight rows of S for one token: rows += (v - rows k^) alpha^T, then out = rows q (out null: no
// reads).
template <bool kHasRead>
void EightRows(const float* key_unit, const float* alpha, const float* q, const float* v,
               size_t size, float* rows, float* out) {
  constexpr size_t kRows = 4;  // whose sums and errors stay in registers
  const Tag d;
  float errors[kLanes];
  hn::StoreU(hn::Sub(hn::LoadU(d, v), EightRowDots(rows, key_unit, size)), d, errors);
  const Vec zero = hn::Zero(d);
  Vec sums[kLanes] = {zero, zero, zero, zero, zero, zero, zero, zero};
  for (size_t r = 0; r < kLanes; r += kRows) {
    WriteRows<kRows, kHasRead>(errors + r, alpha, q, size, rows + r * size, sums + r);
  }
  if constexpr (kHasRead) hn::StoreU(simd::SumTrees(sums), d, out);
}

// The root mean square in f64, so that its squares cannot leave the range. Lanes as everywhere.
float RootMeanSquare(absl::Span<const float> x) {
  double lanes[kLanes] = {};
  for (size_t j = 0; j < x.size(); j += kLanes) {
    for (size_t n = 0; n < kLanes; ++n) {
      const double element = x[j + n];
      lanes[n] = std::fma(element, element, lanes[n]);
    }
  }
  const double sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                     ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  return static_cast<float>(std::sqrt(sum / static_cast<double>(x.size()) + kVlaReadEpsilon));
}

// Tokens per pass over the heads: a head's state stays in the nearest cache for that many tokens.
constexpr size_t kPassTokens = 64;

// A head's share of a pass of tokens. The inputs point at the first token's; from token to token
// their stride is key_stride or value_stride floats.
struct HeadPass {
  const float* q;  // null: no reads
  const float* k;
  const float* v;
  const float* u;  // null: variant kRls
  float* out;      // null: no reads
  size_t key_stride;
  size_t value_stride;
  size_t count;
  int64_t rank;  // of the first token
};

// One head's state and room for what is computed from the tokens.
class Head {
 public:
  Head(const VlaOptions& options, size_t pass_tokens, float* a, float* s, float* key_sum)
      : options_(options),
        key_dim_(static_cast<size_t>(options.key_dim)),
        value_dim_(static_cast<size_t>(options.value_dim)),
        a_(a),
        s_(s),
        key_sum_(key_sum),
        key_units_(pass_tokens * key_dim_),
        alpha_(key_dim_),
        z_(key_dim_),
        next_z_(key_dim_) {}

  void Fold(const HeadPass& pass) {
    for (size_t t = 0; t < pass.count; ++t) {
      L2Normalize({pass.k + t * pass.key_stride, key_dim_},
                  absl::MakeSpan(key_units_).subspan(t * key_dim_, key_dim_));
    }
    SymmetricTimes(a_, Direction(pass, 0), key_dim_, z_.data());
    for (size_t t = 0; t < pass.count; ++t) {
      AdvanceA(pass, t);
      if (key_sum_ != nullptr) {
        const float* k = pass.k + t * pass.key_stride;
        for (size_t j = 0; j < key_dim_; ++j) key_sum_[j] += k[j];
      }
      if (pass.out == nullptr) {
        AdvanceS<false>(pass, t);
      } else {
        AdvanceS<true>(pass, t);
        Normalize(pass.q + t * pass.key_stride, {pass.out + t * pass.value_stride, value_dim_});
      }
    }
  }

 private:
  const float* KeyUnit(size_t t) const { return key_units_.data() + t * key_dim_; }

  const float* Direction(const HeadPass& pass, size_t t) const {
    return pass.u == nullptr ? KeyUnit(t) : pass.u + t * pass.key_stride;
  }

  // From z = A u to alpha, and to the next token's z in the same pass over A. Both factors of z z^T
  // are scaled by the root of the denominator: see SubtractOuterColumns.
  void AdvanceA(const HeadPass& pass, size_t t) {
    const float denominator = std::max(1.0f + RowDot(Direction(pass, t), z_.data(), key_dim_),
                                       static_cast<float>(kVlaDenominatorMin));
    const float root = std::sqrt(denominator);
    for (float& element : z_) element /= root;
    const bool has_next = t + 1 < pass.count;
    const float* x[] = {KeyUnit(t), has_next ? Direction(pass, t + 1) : nullptr};
    float* y[] = {alpha_.data(), next_z_.data()};
    if (has_next) {
      SubtractOuter<2>(z_.data(), x, key_dim_, a_, y);
    } else {
      SubtractOuter<1>(z_.data(), x, key_dim_, a_, y);
    }
    if (options_.nudge && (pass.rank + static_cast<int64_t>(t) + 1) % kVlaNudgePeriod == 0) {
      for (size_t i = 0; i < key_dim_; ++i) {
        a_[i * key_dim_ + i] += static_cast<float>(kVlaNudge);
      }
      // The products above lack the nudge.
      for (size_t p = 0; p < (has_next ? 2u : 1u); ++p) SymmetricTimes(a_, x[p], key_dim_, y[p]);
    }
    z_.swap(next_z_);
    if (options_.variant == VlaVariant::kVla) L2Normalize(alpha_, absl::MakeSpan(alpha_));
  }

  template <bool kHasRead>
  void AdvanceS(const HeadPass& pass, size_t t) {
    const size_t value_index = t * pass.value_stride;
    for (size_t i = 0; i < value_dim_; i += kLanes) {
      EightRows<kHasRead>(KeyUnit(t), alpha_.data(),
                          kHasRead ? pass.q + t * pass.key_stride : nullptr,
                          pass.v + value_index + i, key_dim_, s_ + i * key_dim_,
                          kHasRead ? pass.out + value_index + i : nullptr);
    }
  }

  void Normalize(const float* q, absl::Span<float> out) const {
    const float divisor =
        options_.read_norm == VlaReadNorm::kRms
            ? RootMeanSquare(out)
            : std::max(RowDot(key_sum_, q, key_dim_), static_cast<float>(kVlaDenominatorMin));
    for (float& element : out) element /= divisor;
  }

  const VlaOptions& options_;
  const size_t key_dim_;
  const size_t value_dim_;
  float* const a_;
  float* const s_;
  float* const key_sum_;          // null unless the read norm is the paper's
  std::vector<float> key_units_;  // [pass_tokens][K]
  std::vector<float> alpha_;
  std::vector<float> z_;
  std::vector<float> next_z_;
};

struct Sizes {
  size_t num_heads;
  size_t key_dim;
  size_t value_dim;
};

Sizes CheckState(const VlaOptions& options, const VlaState& state) {
  LETHE_CHECK(options.num_heads > 0 && options.key_dim > 0 && options.value_dim > 0);
  const Sizes sizes{static_cast<size_t>(options.num_heads), static_cast<size_t>(options.key_dim),
                    static_cast<size_t>(options.value_dim)};
  LETHE_CHECK(sizes.key_dim % kLanes == 0 && sizes.value_dim % kLanes == 0);
  LETHE_CHECK(state.a.size() == sizes.num_heads * sizes.key_dim * sizes.key_dim);
  LETHE_CHECK(state.s.size() == sizes.num_heads * sizes.value_dim * sizes.key_dim);
  const bool has_key_sum = options.read_norm == VlaReadNorm::kPaper;
  LETHE_CHECK(state.key_sum.size() == (has_key_sum ? sizes.num_heads * sizes.key_dim : 0));
  return sizes;
}

// out empty: no reads.
void Fold(const VlaOptions& options, const VlaInputs& inputs, int64_t count, int64_t step_count,
          const VlaState& state, absl::Span<float> out) {
  const Sizes sizes = CheckState(options, state);
  LETHE_CHECK(count >= 0 && step_count >= 0);
  const auto num_tokens = static_cast<size_t>(count);
  const size_t num_keys = num_tokens * sizes.num_heads * sizes.key_dim;
  const size_t num_values = num_tokens * sizes.num_heads * sizes.value_dim;
  const bool has_direction = options.variant == VlaVariant::kVla;
  const bool has_read = !out.empty();
  LETHE_CHECK(inputs.k.size() == num_keys && inputs.v.size() == num_values);
  LETHE_CHECK(inputs.write_direction.size() == (has_direction ? num_keys : 0));
  for (size_t h = 0; h < sizes.num_heads; ++h) {
    Head head(options, std::min(num_tokens, kPassTokens),
              state.a.data() + h * sizes.key_dim * sizes.key_dim,
              state.s.data() + h * sizes.value_dim * sizes.key_dim,
              state.key_sum.empty() ? nullptr : state.key_sum.data() + h * sizes.key_dim);
    for (size_t begin = 0; begin < num_tokens; begin += kPassTokens) {
      const size_t key_index = (begin * sizes.num_heads + h) * sizes.key_dim;
      const size_t value_index = (begin * sizes.num_heads + h) * sizes.value_dim;
      head.Fold({has_read ? inputs.q.data() + key_index : nullptr, inputs.k.data() + key_index,
                 inputs.v.data() + value_index,
                 has_direction ? inputs.write_direction.data() + key_index : nullptr,
                 has_read ? out.data() + value_index : nullptr, sizes.num_heads * sizes.key_dim,
                 sizes.num_heads * sizes.value_dim, std::min(num_tokens - begin, kPassTokens),
                 step_count + static_cast<int64_t>(begin)});
    }
  }
}

}  // namespace

void VlaInitialState(const VlaOptions& options, const VlaState& state) {
  const Sizes sizes = CheckState(options, state);
  LETHE_CHECK(options.lambda0 > 0.0);
  std::fill(state.a.begin(), state.a.end(), 0.0f);
  std::fill(state.s.begin(), state.s.end(), 0.0f);
  std::fill(state.key_sum.begin(), state.key_sum.end(), 0.0f);
  for (size_t h = 0; h < sizes.num_heads; ++h) {
    float* a = state.a.data() + h * sizes.key_dim * sizes.key_dim;
    for (size_t i = 0; i < sizes.key_dim; ++i) {
      a[i * sizes.key_dim + i] = static_cast<float>(1.0 / options.lambda0);
    }
  }
}

void VlaRecurrent(const VlaOptions& options, const VlaInputs& inputs, int64_t count,
                  int64_t step_count, const VlaState& state, absl::Span<float> out) {
  LETHE_CHECK(inputs.q.size() == inputs.k.size() && out.size() == inputs.v.size());
  Fold(options, inputs, count, step_count, state, out);
}

void VlaWrite(const VlaOptions& options, const VlaInputs& inputs, int64_t count, int64_t step_count,
              const VlaState& state) {
  Fold(options, inputs, count, step_count, state, {});
}

}  // namespace lethe
