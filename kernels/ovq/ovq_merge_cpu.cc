#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/math/math.h"
#include "kernels/ovq/ovq.h"
#include "kernels/ovq/ovq_dots.h"

namespace lethe {
namespace {

constexpr auto kTokens = static_cast<size_t>(kOvqChunkTokens);

// A chunk token's most similar candidate; the lowest index on ties.
struct Match {
  float similarity;
  int32_t slot;
};

std::vector<Match> BestMatches(const float* candidates, size_t num_candidates, size_t key_dim,
                               const float* keys) {
  constexpr size_t kTile = 4;
  static_assert(kTokens % kTile == 0);
  std::vector<Match> matches;
  matches.reserve(kTokens);
  std::vector<float> similarities(kTile * num_candidates);
  for (size_t i = 0; i < kTokens; i += kTile) {
    const float* x[kTile];
    float* dots[kTile];
    for (size_t t = 0; t < kTile; ++t) {
      x[t] = keys + (i + t) * key_dim;
      dots[t] = similarities.data() + t * num_candidates;
    }
    OvqRowDots<kTile>(candidates, num_candidates, key_dim, x, dots);
    for (size_t t = 0; t < kTile; ++t) {
      const float* best = std::max_element(dots[t], dots[t] + num_candidates);
      matches.push_back({*best, static_cast<int32_t>(best - dots[t])});
    }
  }
  return matches;
}

// The `num_seeds` tokens with the smallest (similarity, rank), in rank order.
std::vector<size_t> SmallestSimilarities(const std::vector<Match>& matches, size_t first_token,
                                         size_t num_seeds) {
  std::vector<std::pair<float, size_t>> order;
  for (size_t i = first_token; i < matches.size(); ++i) {
    order.emplace_back(matches[i].similarity, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<size_t> seeds;
  for (size_t n = 0; n < num_seeds; ++n) seeds.push_back(order[n].second);
  std::sort(seeds.begin(), seeds.end());
  return seeds;
}

void OpenSlot(const OvqShape& shape, const OvqChunk& chunk, size_t token, OvqSlots* slots) {
  const auto key_dim = static_cast<size_t>(shape.key_dim);
  const auto value_dim = static_cast<size_t>(shape.value_dim);
  const float* key = chunk.keys.data() + token * key_dim;
  const float* value = chunk.values.data() + token * value_dim;
  slots->keys.insert(slots->keys.end(), key, key + key_dim);
  slots->values.insert(slots->values.end(), value, value + value_dim);
  slots->counts.push_back(1);
  slots->log_counts.push_back(0.0f);
}

// mean <- (count mean + sum over the tokens' rows) / (count + tokens), the sum in rank order.
void UpdateMean(const float* rows, size_t size, const std::vector<size_t>& tokens, int32_t count,
                float* mean) {
  std::vector<float> sum(size);
  for (size_t token : tokens) {
    for (size_t j = 0; j < size; ++j) sum[j] += rows[token * size + j];
  }
  const auto old_count = static_cast<float>(count);
  const float new_count = old_count + static_cast<float>(tokens.size());
  for (size_t j = 0; j < size; ++j) mean[j] = std::fma(old_count, mean[j], sum[j]) / new_count;
}

void Join(const OvqShape& shape, const OvqChunk& chunk, const std::vector<size_t>& tokens,
          size_t slot, OvqSlots* slots) {
  const auto key_dim = static_cast<size_t>(shape.key_dim);
  const auto value_dim = static_cast<size_t>(shape.value_dim);
  int32_t& count = slots->counts[slot];
  UpdateMean(chunk.keys.data(), key_dim, tokens, count, slots->keys.data() + slot * key_dim);
  UpdateMean(chunk.values.data(), value_dim, tokens, count,
             slots->values.data() + slot * value_dim);
  count += static_cast<int32_t>(tokens.size());
  slots->log_counts[slot] = Log(static_cast<float>(count));
}

}  // namespace

void OvqMerge(const OvqShape& shape, int64_t num_tokens_before, const OvqChunk& chunk,
              OvqSlots* slots, absl::Span<int32_t> assignment) {
  LETHE_CHECK(chunk.size == kOvqChunkTokens);
  LETHE_CHECK(chunk.keys.size() == kTokens * static_cast<size_t>(shape.key_dim));
  LETHE_CHECK(chunk.values.size() == kTokens * static_cast<size_t>(shape.value_dim));
  LETHE_CHECK(assignment.empty() || assignment.size() == kTokens);
  const auto key_dim = static_cast<size_t>(shape.key_dim);
  const float* keys = chunk.keys.data();
  const size_t num_old = slots->counts.size();
  const auto num_grown =
      static_cast<size_t>(OvqNumSlots(shape.max_slots, num_tokens_before + kOvqChunkTokens) -
                          OvqNumSlots(shape.max_slots, num_tokens_before));
  const bool is_first_chunk = num_old == 0;
  const size_t num_new = is_first_chunk ? std::max<size_t>(num_grown, 1) : num_grown;

  std::vector<Match> matches = is_first_chunk
                                   ? BestMatches(keys, 1, key_dim, keys)
                                   : BestMatches(slots->keys.data(), num_old, key_dim, keys);
  std::vector<size_t> seeds =
      SmallestSimilarities(matches, is_first_chunk ? 1 : 0, is_first_chunk ? num_new - 1 : num_new);
  if (is_first_chunk) seeds.insert(seeds.begin(), 0);
  for (size_t seed : seeds) OpenSlot(shape, chunk, seed, slots);
  // In the first chunk the new slots are the only ones that can be joined.
  if (is_first_chunk) matches = BestMatches(slots->keys.data(), num_new, key_dim, keys);
  for (size_t n = 0; n < seeds.size(); ++n) {
    matches[seeds[n]].slot = static_cast<int32_t>(num_old + n);
  }

  std::vector<std::vector<size_t>> joins(num_old + num_new);
  for (size_t i = 0; i < kTokens; ++i) {
    const bool is_seed = std::binary_search(seeds.begin(), seeds.end(), i);
    if (!is_seed) joins[static_cast<size_t>(matches[i].slot)].push_back(i);
    if (!assignment.empty()) assignment[i] = is_seed ? ~matches[i].slot : matches[i].slot;
  }
  for (size_t slot = 0; slot < joins.size(); ++slot) {
    if (!joins[slot].empty()) Join(shape, chunk, joins[slot], slot, slots);
  }
}

}  // namespace lethe
