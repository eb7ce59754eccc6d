#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "hwy/highway.h"

#include "kernels/base/check.h"
#include "kernels/math/math.h"
#include "kernels/ovq/ovq.h"
#include "kernels/ovq/ovq_dots.h"

namespace lethe {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanes = 8;
constexpr size_t kTileTokens = 4;  // tokens that share one pass over the slots
using Tag = hn::FixedTag<float, kLanes>;
using Vec = hn::Vec<Tag>;

// out[t][first ..] += sum over n of weights[t][n] rows[n][first ..], one fma chain per element.
template <size_t kTokens, size_t kVectors>
void WeightedColumns(const float* rows, size_t num_rows, size_t size, size_t first,
                     const float* const* weights, float* const* out) {
  const Tag d;
  Vec sums[kTokens][kVectors];
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t m = 0; m < kVectors; ++m) {
      sums[t][m] = hn::LoadU(d, out[t] + first + m * kLanes);
    }
  }
  for (size_t n = 0; n < num_rows; ++n) {
    const float* row = rows + n * size + first;
    for (size_t m = 0; m < kVectors; ++m) {
      const Vec element = hn::LoadU(d, row + m * kLanes);
      for (size_t t = 0; t < kTokens; ++t) {
        sums[t][m] = hn::MulAdd(hn::Set(d, weights[t][n]), element, sums[t][m]);
      }
    }
  }
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t m = 0; m < kVectors; ++m) {
      hn::StoreU(sums[t][m], d, out[t] + first + m * kLanes);
    }
  }
}

// Tiles the columns so that about eight sums are in flight.
template <size_t kTokens>
void AddWeightedRows(const float* rows, size_t num_rows, size_t size, const float* const* weights,
                     float* const* out) {
  constexpr size_t kVectors = kTokens == 1 ? 8 : 2;
  size_t first = 0;
  for (; first + kVectors * kLanes <= size; first += kVectors * kLanes) {
    WeightedColumns<kTokens, kVectors>(rows, num_rows, size, first, weights, out);
  }
  for (; first < size; first += kLanes) {
    WeightedColumns<kTokens, 1>(rows, num_rows, size, first, weights, out);
  }
}

class Reader {
 public:
  Reader(const OvqShape& shape, float logit_scale, const OvqSlots& slots, const OvqChunk& chunk)
      : key_dim_(static_cast<size_t>(shape.key_dim)),
        value_dim_(static_cast<size_t>(shape.value_dim)),
        logit_scale_(logit_scale),
        slots_(slots),
        chunk_(chunk),
        num_slots_(slots.counts.size()),
        weight_stride_(num_slots_ + static_cast<size_t>(shape.chunk_tokens)),
        weights_(kTileTokens * weight_stride_) {}

  // Tokens first .. first + kTokens - 1; q and out point at the first one's.
  template <size_t kTokens>
  void Read(size_t first, const float* q, float* out) {
    const float* queries[kTokens];
    float* weights[kTokens];
    const float* slot_weights[kTokens];
    float* reads[kTokens];
    for (size_t t = 0; t < kTokens; ++t) {
      queries[t] = q + t * key_dim_;
      weights[t] = weights_.data() + t * weight_stride_;
      slot_weights[t] = weights[t];
      reads[t] = out + t * value_dim_;
      std::fill(reads[t], reads[t] + value_dim_, 0.0f);
    }
    OvqRowDots<kTokens>(slots_.keys.data(), num_slots_, key_dim_, queries, weights);
    float denominators[kTokens];
    for (size_t t = 0; t < kTokens; ++t) {
      float* chunk_dots = weights[t] + num_slots_;
      OvqRowDots<1>(chunk_.keys.data(), first + t + 1, key_dim_, &queries[t], &chunk_dots);
      denominators[t] = Softmax({weights[t], num_slots_ + first + t + 1});
    }
    AddWeightedRows<kTokens>(slots_.values.data(), num_slots_, value_dim_, slot_weights, reads);
    for (size_t t = 0; t < kTokens; ++t) {
      const float* chunk_weights = weights[t] + num_slots_;
      AddWeightedRows<1>(chunk_.values.data(), first + t + 1, value_dim_, &chunk_weights,
                         &reads[t]);
      for (size_t i = 0; i < value_dim_; ++i) reads[t][i] /= denominators[t];
    }
  }

 private:
  // Turns dot products into unnormalised weights, returns their sum.
  float Softmax(absl::Span<float> weights) const {
    for (size_t n = 0; n < weights.size(); ++n) {
      const float log_count = n < num_slots_ ? slots_.log_counts[n] : 0.0f;
      weights[n] = std::fma(logit_scale_, weights[n], log_count);
    }
    const float largest = *std::max_element(weights.begin(), weights.end());
    for (float& weight : weights) weight -= largest;
    Exp(weights, weights);
    return Sum(weights);
  }

  const size_t key_dim_;
  const size_t value_dim_;
  const float logit_scale_;
  const OvqSlots& slots_;
  const OvqChunk& chunk_;
  const size_t num_slots_;
  const size_t weight_stride_;
  std::vector<float> weights_;
};

}  // namespace

int64_t OvqNumSlots(int64_t max_slots, int64_t num_tokens) {
  LETHE_CHECK(max_slots > 0 && num_tokens >= 0);
  return max_slots * num_tokens / (max_slots + num_tokens);
}

void OvqRead(const OvqShape& shape, float logit_scale, const OvqSlots& slots, const OvqChunk& chunk,
             int64_t first, int64_t count, absl::Span<const float> q, absl::Span<float> out) {
  LETHE_CHECK(shape.key_dim > 0 && shape.key_dim % static_cast<int64_t>(kLanes) == 0);
  LETHE_CHECK(shape.value_dim > 0 && shape.value_dim % static_cast<int64_t>(kLanes) == 0);
  LETHE_CHECK(shape.chunk_tokens > 0 && shape.chunk_tokens % kOvqChunkTokens == 0);
  LETHE_CHECK(first >= 0 && count >= 0 && first + count <= chunk.size &&
              chunk.size <= shape.chunk_tokens);
  LETHE_CHECK(chunk.keys.size() == static_cast<size_t>(shape.chunk_tokens * shape.key_dim));
  LETHE_CHECK(chunk.values.size() == static_cast<size_t>(shape.chunk_tokens * shape.value_dim));
  LETHE_CHECK(q.size() == static_cast<size_t>(count * shape.key_dim));
  LETHE_CHECK(out.size() == static_cast<size_t>(count * shape.value_dim));
  LETHE_CHECK(slots.keys.size() == slots.counts.size() * static_cast<size_t>(shape.key_dim));
  LETHE_CHECK(slots.values.size() == slots.counts.size() * static_cast<size_t>(shape.value_dim));
  LETHE_CHECK(slots.log_counts.size() == slots.counts.size());
  Reader reader(shape, logit_scale, slots, chunk);
  const auto key_dim = static_cast<size_t>(shape.key_dim);
  const auto value_dim = static_cast<size_t>(shape.value_dim);
  const auto num_tokens = static_cast<size_t>(count);
  const auto rank = static_cast<size_t>(first);
  size_t t = 0;
  for (; t + kTileTokens <= num_tokens; t += kTileTokens) {
    reader.Read<kTileTokens>(rank + t, q.data() + t * key_dim, out.data() + t * value_dim);
  }
  for (; t < num_tokens; ++t) {
    reader.Read<1>(rank + t, q.data() + t * key_dim, out.data() + t * value_dim);
  }
}

}  // namespace lethe
