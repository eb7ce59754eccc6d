#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "hwy/highway.h"

#include "kernels/base/check.h"
#include "kernels/math/math.h"
#include "kernels/math/vector_math.h"
#include "kernels/ovq/ovq.h"

namespace lethe {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanes = 8;
using Tag = hn::FixedTag<float, kLanes>;
using Vec = hn::Vec<Tag>;
using IndexTag = hn::FixedTag<int32_t, kLanes>;
using IndexVec = hn::Vec<IndexTag>;

constexpr size_t kTileTokens = 4;
constexpr size_t kUsualKeyDim = 64;  // has code of its own
static_assert(kOvqChunkTokens % kTileTokens == 0);

// A chunk token's most similar candidate; the lowest index on ties.
struct Match {
  float similarity;
  int32_t slot;
};

// The best slots of four tokens so far: lane 4 r + t holds token t's among the slots n for which
// n % 2 = r.
struct TileBest {
  Vec similarity = hn::Set(Tag(), -std::numeric_limits<float>::infinity());
  IndexVec slot = hn::Zero(IndexTag());
};

// Dot products of four tokens with two slots, in the lanes of TileBest; each sums in 8 lanes and
// the fixed tree, as OvqRowDots.
HWY_INLINE Vec TileDots(const float* tokens, const float* slot0, const float* slot1,
                        size_t key_dim) {
  const Tag d;
  Vec sums[2 * kTileTokens];
  for (Vec& sum : sums) sum = hn::Zero(d);
  for (size_t j = 0; j < key_dim; j += kLanes) {
    const Vec row0 = hn::LoadU(d, slot0 + j);
    const Vec row1 = hn::LoadU(d, slot1 + j);
    for (size_t t = 0; t < kTileTokens; ++t) {
      const Vec x = hn::LoadU(d, tokens + t * key_dim + j);
      sums[t] = hn::MulAdd(row0, x, sums[t]);
      sums[kTileTokens + t] = hn::MulAdd(row1, x, sums[kTileTokens + t]);
    }
  }
  return simd::SumTrees(sums);
}

// Slots first .. last - 1, ascending over the calls; first is even. A key_dim that the compiler
// knows lets it keep the tokens at hand; it reads them twice as often otherwise.
template <size_t kKeyDim>
void UpdateTile(const float* tokens, const float* slots, size_t first, size_t last,
                size_t any_key_dim, TileBest* best) {
  const size_t key_dim = kKeyDim > 0 ? kKeyDim : any_key_dim;
  const IndexTag di;
  const IndexVec parity = hn::ShiftRight<2>(hn::Iota(di, 0));
  TileBest found = *best;
  for (size_t n = first; n < last; n += 2) {
    // An odd last slot stands in for its missing neighbour, which then ties with it and loses.
    const float* row0 = slots + n * key_dim;
    const float* row1 = n + 1 < last ? row0 + key_dim : row0;
    const Vec dots = TileDots(tokens, row0, row1, key_dim);
    const auto is_better = hn::Gt(dots, found.similarity);
    const IndexVec slot = hn::Add(hn::Set(di, static_cast<int32_t>(n)), parity);
    found.similarity = hn::IfThenElse(is_better, dots, found.similarity);
    found.slot = hn::IfThenElse(hn::RebindMask(di, is_better), slot, found.slot);
  }
  *best = found;
}

// Joins the even and the odd slots' best.
void AppendMatches(const TileBest& best, std::vector<Match>* matches) {
  float similarities[kLanes];
  int32_t slots[kLanes];
  hn::StoreU(best.similarity, Tag(), similarities);
  hn::StoreU(best.slot, IndexTag(), slots);
  for (size_t t = 0; t < kTileTokens; ++t) {
    const Match even{similarities[t], slots[t]};
    const Match odd{similarities[t + kTileTokens], slots[t + kTileTokens]};
    const bool is_odd_better = odd.similarity > even.similarity ||
                               (odd.similarity == even.similarity && odd.slot < even.slot);
    matches->push_back(is_odd_better ? odd : even);
  }
}

std::vector<Match> BestMatches(const float* candidates, size_t num_candidates, size_t key_dim,
                               const float* keys, size_t num_tokens) {
  constexpr size_t kBlockSlots = 32;  // stay in the nearest cache while all tokens pass
  const auto update = key_dim == kUsualKeyDim ? &UpdateTile<kUsualKeyDim> : &UpdateTile<0>;
  std::vector<TileBest> best(num_tokens / kTileTokens);
  for (size_t first = 0; first < num_candidates; first += kBlockSlots) {
    const size_t last = std::min(first + kBlockSlots, num_candidates);
    for (size_t tile = 0; tile < best.size(); ++tile) {
      update(keys + tile * kTileTokens * key_dim, candidates, first, last, key_dim, &best[tile]);
    }
  }
  std::vector<Match> matches;
  matches.reserve(num_tokens);
  for (const TileBest& tile : best) AppendMatches(tile, &matches);
  return matches;
}

// The `num_seeds` tokens with the smallest (similarity, rank), in rank order.
std::vector<size_t> SmallestSimilarities(const std::vector<Match>& matches, size_t first_token,
                                         size_t num_seeds) {
  std::vector<std::pair<float, size_t>> order;
  order.reserve(matches.size());
  for (size_t i = first_token; i < matches.size(); ++i) {
    order.emplace_back(matches[i].similarity, i);
  }
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(num_seeds), order.end());
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
  const Tag d;
  const auto old_count = static_cast<float>(count);
  const Vec old_weight = hn::Set(d, old_count);
  const Vec new_count = hn::Set(d, old_count + static_cast<float>(tokens.size()));
  for (size_t j = 0; j < size; j += kLanes) {
    Vec sum = hn::Zero(d);
    for (size_t token : tokens) sum = hn::Add(sum, hn::LoadU(d, rows + token * size + j));
    sum = hn::MulAdd(old_weight, hn::LoadU(d, mean + j), sum);
    hn::StoreU(hn::Div(sum, new_count), d, mean + j);
  }
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

// Every token but the seeds joins its slot, together with the later ones of the same slot.
void JoinAll(const OvqShape& shape, const OvqChunk& chunk, const std::vector<Match>& matches,
             const std::vector<size_t>& seeds, OvqSlots* slots) {
  const size_t num_tokens = matches.size();
  std::vector<bool> is_done(num_tokens);
  for (size_t seed : seeds) is_done[seed] = true;
  std::vector<size_t> tokens;
  tokens.reserve(num_tokens);
  for (size_t i = 0; i < num_tokens; ++i) {
    if (is_done[i]) continue;
    tokens.clear();
    for (size_t later = i; later < num_tokens; ++later) {
      if (is_done[later] || matches[later].slot != matches[i].slot) continue;
      tokens.push_back(later);
      is_done[later] = true;
    }
    Join(shape, chunk, tokens, static_cast<size_t>(matches[i].slot), slots);
  }
}

}  // namespace

void OvqMerge(const OvqShape& shape, int64_t num_tokens_before, const OvqChunk& chunk,
              OvqSlots* slots, absl::Span<int32_t> assignment) {
  LETHE_CHECK(shape.key_dim % static_cast<int64_t>(kLanes) == 0);
  LETHE_CHECK(shape.value_dim % static_cast<int64_t>(kLanes) == 0);
  LETHE_CHECK(shape.chunk_tokens > 0 && shape.chunk_tokens % kOvqChunkTokens == 0);
  LETHE_CHECK(chunk.size == shape.chunk_tokens);
  const auto num_tokens = static_cast<size_t>(shape.chunk_tokens);
  LETHE_CHECK(chunk.keys.size() == num_tokens * static_cast<size_t>(shape.key_dim));
  LETHE_CHECK(chunk.values.size() == num_tokens * static_cast<size_t>(shape.value_dim));
  LETHE_CHECK(assignment.empty() || assignment.size() == num_tokens);
  const auto key_dim = static_cast<size_t>(shape.key_dim);
  const float* keys = chunk.keys.data();
  const size_t num_old = slots->counts.size();
  const auto num_grown =
      static_cast<size_t>(OvqNumSlots(shape.max_slots, num_tokens_before + shape.chunk_tokens) -
                          OvqNumSlots(shape.max_slots, num_tokens_before));
  const bool is_first_chunk = num_old == 0;
  const size_t num_new = is_first_chunk ? std::max<size_t>(num_grown, 1) : num_grown;

  std::vector<Match> matches =
      is_first_chunk ? BestMatches(keys, 1, key_dim, keys, num_tokens)
                     : BestMatches(slots->keys.data(), num_old, key_dim, keys, num_tokens);
  std::vector<size_t> seeds =
      SmallestSimilarities(matches, is_first_chunk ? 1 : 0, is_first_chunk ? num_new - 1 : num_new);
  if (is_first_chunk) seeds.insert(seeds.begin(), 0);
  for (size_t seed : seeds) OpenSlot(shape, chunk, seed, slots);
  // In the first chunk the new slots are the only ones that can be joined.
  if (is_first_chunk) matches = BestMatches(slots->keys.data(), num_new, key_dim, keys, num_tokens);
  for (size_t n = 0; n < seeds.size(); ++n) {
    matches[seeds[n]].slot = static_cast<int32_t>(num_old + n);
  }

  for (size_t i = 0; i < assignment.size(); ++i) {
    const bool is_seed = std::binary_search(seeds.begin(), seeds.end(), i);
    assignment[i] = is_seed ? ~matches[i].slot : matches[i].slot;
  }
  JoinAll(shape, chunk, matches, seeds, slots);
}

}  // namespace lethe
