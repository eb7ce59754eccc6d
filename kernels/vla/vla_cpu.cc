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

// A -= w w^T. The product of both factors is exact inside the fma, so A stays symmetric.
void SubtractOuter(const float* w, size_t size, float* a) {
  const Tag d;
  for (size_t i = 0; i < size; ++i) {
    const Vec wi = hn::Set(d, w[i]);
    float* row = a + i * size;
    for (size_t j = 0; j < size; j += kLanes) {
      hn::StoreU(hn::NegMulAdd(wi, hn::LoadU(d, w + j), hn::LoadU(d, row + j)), d, row + j);
    }
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

// row += e alpha.
HWY_INLINE void WriteRow(float e, const float* alpha, size_t size, float* row) {
  const Tag d;
  const Vec error = hn::Set(d, e);
  for (size_t j = 0; j < size; j += kLanes) {
    hn::StoreU(hn::MulAdd(error, hn::LoadU(d, alpha + j), hn::LoadU(d, row + j)), d, row + j);
  }
}

// row += e alpha, returns row . q after it.
HWY_INLINE float WriteAndRead(float e, const float* alpha, const float* q, size_t size,
                              float* row) {
  const Tag d;
  const Vec error = hn::Set(d, e);
  Vec sum = hn::Zero(d);
  for (size_t j = 0; j < size; j += kLanes) {
    const Vec s = hn::MulAdd(error, hn::LoadU(d, alpha + j), hn::LoadU(d, row + j));
    hn::StoreU(s, d, row + j);
    sum = hn::MulAdd(s, hn::LoadU(d, q + j), sum);
  }
  return simd::SumTree(sum);
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

// One head's state, the token at hand and room for what is computed from it.
class Head {
 public:
  Head(const VlaOptions& options, float* a, float* s, float* key_sum)
      : options_(options),
        key_dim_(static_cast<size_t>(options.key_dim)),
        value_dim_(static_cast<size_t>(options.value_dim)),
        a_(a),
        s_(s),
        key_sum_(key_sum),
        key_unit_(key_dim_),
        alpha_(key_dim_),
        z_(key_dim_) {}

  // u null: variant kRls.
  void Step(int64_t rank, const float* q, const float* k, const float* v, const float* u,
            absl::Span<float> out) {
    AdvanceA(rank, k, u);
    for (size_t i = 0; i < value_dim_; ++i) {
      float* row = s_ + i * key_dim_;
      const float error = v[i] - RowDot(row, key_unit_.data(), key_dim_);
      out[i] = WriteAndRead(error, alpha_.data(), q, key_dim_, row);
    }
    const float divisor =
        options_.read_norm == VlaReadNorm::kRms ? RootMeanSquare(out) : PaperDivisor(q);
    for (float& element : out) element /= divisor;
  }

  void Write(int64_t rank, const float* k, const float* v, const float* u) {
    AdvanceA(rank, k, u);
    for (size_t i = 0; i < value_dim_; ++i) {
      float* row = s_ + i * key_dim_;
      WriteRow(v[i] - RowDot(row, key_unit_.data(), key_dim_), alpha_.data(), key_dim_, row);
    }
  }

 private:
  // Everything of a token but S: A, the sum of keys, and what S needs of them.
  void AdvanceA(int64_t rank, const float* k, const float* u) {
    L2Normalize({k, key_dim_}, absl::MakeSpan(key_unit_));
    UpdateA(u == nullptr ? key_unit_.data() : u);
    if (options_.nudge && (rank + 1) % kVlaNudgePeriod == 0) {
      for (size_t i = 0; i < key_dim_; ++i) {
        a_[i * key_dim_ + i] += static_cast<float>(kVlaNudge);
      }
    }
    SymmetricTimes(a_, key_unit_.data(), key_dim_, alpha_.data());
    if (options_.variant == VlaVariant::kVla) L2Normalize(alpha_, absl::MakeSpan(alpha_));
    if (key_sum_ != nullptr) {
      for (size_t j = 0; j < key_dim_; ++j) key_sum_[j] += k[j];
    }
  }

  // Both factors of z z^T are scaled by the root of the denominator: see SubtractOuter.
  void UpdateA(const float* u) {
    SymmetricTimes(a_, u, key_dim_, z_.data());
    const float denominator =
        std::max(1.0f + RowDot(u, z_.data(), key_dim_), static_cast<float>(kVlaDenominatorMin));
    const float root = std::sqrt(denominator);
    for (float& element : z_) element /= root;
    SubtractOuter(z_.data(), key_dim_, a_);
  }

  float PaperDivisor(const float* q) const {
    return std::max(RowDot(key_sum_, q, key_dim_), static_cast<float>(kVlaDenominatorMin));
  }

  const VlaOptions& options_;
  const size_t key_dim_;
  const size_t value_dim_;
  float* const a_;
  float* const s_;
  float* const key_sum_;  // null unless the read norm is the paper's
  std::vector<float> key_unit_;
  std::vector<float> alpha_;
  std::vector<float> z_;
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
template <bool kHasRead>
void Fold(const VlaOptions& options, const VlaInputs& inputs, int64_t count, int64_t step_count,
          const VlaState& state, absl::Span<float> out) {
  const Sizes sizes = CheckState(options, state);
  LETHE_CHECK(count >= 0 && step_count >= 0);
  const auto num_tokens = static_cast<size_t>(count);
  const size_t num_keys = num_tokens * sizes.num_heads * sizes.key_dim;
  const size_t num_values = num_tokens * sizes.num_heads * sizes.value_dim;
  const bool has_direction = options.variant == VlaVariant::kVla;
  LETHE_CHECK(inputs.k.size() == num_keys && inputs.v.size() == num_values);
  LETHE_CHECK(inputs.write_direction.size() == (has_direction ? num_keys : 0));
  for (size_t h = 0; h < sizes.num_heads; ++h) {
    Head head(options, state.a.data() + h * sizes.key_dim * sizes.key_dim,
              state.s.data() + h * sizes.value_dim * sizes.key_dim,
              state.key_sum.empty() ? nullptr : state.key_sum.data() + h * sizes.key_dim);
    for (size_t t = 0; t < num_tokens; ++t) {
      const size_t key_index = (t * sizes.num_heads + h) * sizes.key_dim;
      const size_t value_index = (t * sizes.num_heads + h) * sizes.value_dim;
      const int64_t rank = step_count + static_cast<int64_t>(t);
      const float* k = inputs.k.data() + key_index;
      const float* v = inputs.v.data() + value_index;
      const float* u = has_direction ? inputs.write_direction.data() + key_index : nullptr;
      if constexpr (kHasRead) {
        head.Step(rank, inputs.q.data() + key_index, k, v, u,
                  out.subspan(value_index, sizes.value_dim));
      } else {
        head.Write(rank, k, v, u);
      }
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
  Fold<true>(options, inputs, count, step_count, state, out);
}

void VlaWrite(const VlaOptions& options, const VlaInputs& inputs, int64_t count, int64_t step_count,
              const VlaState& state) {
  Fold<false>(options, inputs, count, step_count, state, {});
}

}  // namespace lethe
