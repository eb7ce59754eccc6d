#include <algorithm>
#include <cmath>
#include <vector>

#include "hwy/highway.h"

#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/math/math.h"
#include "kernels/math/vector_math.h"
#include "kernels/window_attention/window_attention.h"

namespace lethe {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::FixedTag<float, 8>;
using V = hn::Vec<D>;

constexpr int64_t kLanes = 8;
constexpr int64_t kVectorsPerPass = 8;  // sums in flight, to hide the latency of fma

// What one token reads: the rows at distance 0, 1, … .
struct Rows {
  std::vector<const float*> keys;
  std::vector<const float*> values;
  std::vector<float> weights;
  int64_t count = 0;
};

// scores[j] = q . keys[j] / sqrt(K) - slope j, each dot product as math.h's Dot: for 8 rows from
// `first`, and for one.
void ScoreEight(const float* q, const float* const* keys, int64_t offset, int64_t key_dim,
                float scale, float slope, int64_t first, float* scores) {
  const D d;
  V lanes[kLanes];
  for (V& lane : lanes) lane = hn::Zero(d);
  for (int64_t i = 0; i < key_dim; i += kLanes) {
    const V query = hn::LoadU(d, q + i);
    for (int j = 0; j < kLanes; ++j) {
      lanes[j] = hn::MulAdd(query, hn::LoadU(d, keys[first + j] + offset + i), lanes[j]);
    }
  }
  const V scaled = hn::Mul(simd::SumTrees(lanes), hn::Set(d, scale));
  const V distance = hn::Iota(d, static_cast<float>(first));
  hn::StoreU(hn::NegMulAdd(hn::Set(d, slope), distance, scaled), d, scores + first);
}

void ScoreOne(const float* q, const float* const* keys, int64_t offset, int64_t key_dim,
              float scale, float slope, int64_t first, float* scores) {
  const D d;
  V lanes = hn::Zero(d);
  for (int64_t i = 0; i < key_dim; i += kLanes) {
    lanes = hn::MulAdd(hn::LoadU(d, q + i), hn::LoadU(d, keys[first] + offset + i), lanes);
  }
  scores[first] = std::fma(-slope, static_cast<float>(first), simd::SumTree(lanes) * scale);
}

// Where a score is NaN the weights' sum is, whatever this returns; e^(s - 0) is that of s - -0.
float Largest(absl::Span<const float> scores) {
  const D d;
  V largest = hn::Set(d, scores[0]);
  size_t i = 0;
  for (; i + kLanes <= scores.size(); i += kLanes) {
    largest = hn::Max(largest, hn::LoadU(d, scores.data() + i));
  }
  float lanes[kLanes];
  hn::StoreU(largest, d, lanes);
  float result = *std::max_element(lanes, lanes + kLanes);
  for (; i < scores.size(); ++i) result = std::max(result, scores[i]);
  return result;
}

// o = (sum_j weights[j] values[j]) / total for 8 kVectors channels from `offset` on.
template <int kVectors>
void SumValues(const Rows& rows, int64_t offset, float total, float* o) {
  const D d;
  V sums[kVectors];
  for (V& sum : sums) sum = hn::Zero(d);
  for (int64_t j = 0; j < rows.count; ++j) {
    const V weight = hn::Set(d, rows.weights[static_cast<size_t>(j)]);
    const float* value = rows.values[static_cast<size_t>(j)] + offset;
    for (int i = 0; i < kVectors; ++i) {
      sums[i] = hn::MulAdd(weight, hn::LoadU(d, value + i * kLanes), sums[i]);
    }
  }
  for (int i = 0; i < kVectors; ++i) {
    hn::StoreU(hn::Div(sums[i], hn::Set(d, total)), d, o + i * kLanes);
  }
}

void GatherRows(const WindowAttentionState& state, const float* k, const float* v, int64_t t,
                Rows* rows) {
  const WindowAttentionShape& shape = state.shape();
  rows->count = std::min(shape.window, state.num_rows() + t + 1);
  for (int64_t j = 0; j < rows->count; ++j) {
    const auto i = static_cast<size_t>(j);
    const bool in_call = j <= t;
    rows->keys[i] = in_call ? k + (t - j) * shape.num_heads * shape.key_dim : state.key_row(j - t);
    rows->values[i] =
        in_call ? v + (t - j) * shape.num_heads * shape.value_dim : state.value_row(j - t);
  }
}

// The mutant: from the call's first token to the present one, then what lies before the call.
void SortFromBlockStart(int64_t t, int64_t count, float* weights, const float** values) {
  const int64_t num_in_call = std::min(t + 1, count);
  if (weights != nullptr) std::reverse(weights, weights + num_in_call);
  if (values != nullptr) std::reverse(values, values + num_in_call);
}

void AttendHead(const WindowAttentionShape& shape, int64_t head, float slope, float scale,
                const float* q, int64_t mutant_t, Rows* rows, float* o) {
  const int64_t key_offset = head * shape.key_dim;
  float* weights = rows->weights.data();
  int64_t j = 0;
  for (; j + kLanes <= rows->count; j += kLanes) {
    ScoreEight(q, rows->keys.data(), key_offset, shape.key_dim, scale, slope, j, weights);
  }
  for (; j < rows->count; ++j) {
    ScoreOne(q, rows->keys.data(), key_offset, shape.key_dim, scale, slope, j, weights);
  }
  const absl::Span<float> present(weights, static_cast<size_t>(rows->count));
  const float largest = Largest(present);
  for (float& score : present) score -= largest;
  Exp(present, present);
  if (mutant_t >= 0) SortFromBlockStart(mutant_t, rows->count, weights, nullptr);
  const float total = Sum(present);
  const int64_t value_offset = head * shape.value_dim;
  int64_t c = 0;
  for (; c + kVectorsPerPass * kLanes <= shape.value_dim; c += kVectorsPerPass * kLanes) {
    SumValues<kVectorsPerPass>(*rows, value_offset + c, total, o + c);
  }
  for (; c < shape.value_dim; c += kLanes) SumValues<1>(*rows, value_offset + c, total, o + c);
}

}  // namespace

void WindowAttention(absl::Span<const float> slopes, absl::Span<const float> q,
                     absl::Span<const float> k, absl::Span<const float> v, int64_t count,
                     WindowAttentionState* state, absl::Span<float> o) {
  const WindowAttentionShape& shape = state->shape();
  const int64_t key_row = shape.num_heads * shape.key_dim;
  const int64_t value_row = shape.num_heads * shape.value_dim;
  LETHE_CHECK(shape.num_heads >= 1 && count >= 0);
  LETHE_CHECK(shape.key_dim % kLanes == 0 && shape.value_dim % kLanes == 0);
  LETHE_CHECK(slopes.size() == static_cast<size_t>(shape.num_heads));
  LETHE_CHECK(q.size() == static_cast<size_t>(count * key_row) && k.size() == q.size());
  LETHE_CHECK(v.size() == static_cast<size_t>(count * value_row) && o.size() == v.size());
  const bool is_mutant = FaultActive(Fault::kWindowSummedFromBlockStart);
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  Rows rows;
  rows.keys.resize(static_cast<size_t>(shape.window));
  rows.values.resize(static_cast<size_t>(shape.window));
  rows.weights.resize(static_cast<size_t>(shape.window));
  for (int64_t t = 0; t < count; ++t) {
    GatherRows(*state, k.data(), v.data(), t, &rows);
    if (is_mutant) SortFromBlockStart(t, rows.count, nullptr, rows.values.data());
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      AttendHead(shape, head, slopes[static_cast<size_t>(head)], scale,
                 q.data() + t * key_row + head * shape.key_dim, is_mutant ? t : -1, &rows,
                 o.data() + t * value_row + head * shape.value_dim);
    }
  }
  state->Append(k, v);
}

}  // namespace lethe
