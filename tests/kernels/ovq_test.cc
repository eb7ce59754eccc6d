// Goal: the f32 form of OVQ follows the double reference and the tie rules, and its bits do not
// depend on the cut.
// Method: the reference replays the device's assignments, each of which must be within rounding of
// the best; repeated and hand-made keys for the ties; every cut of a chunk's reads; merges against
// plain loops over Dot, bit for bit.
#include "kernels/ovq/ovq.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gtest/gtest.h"

#include "kernels/math/math.h"
#include "kernels/ovq/ovq_ref.h"
#include "tests/kernels/stream_inputs.h"

namespace lethe {
namespace {

using testing::MaxAbs;
using testing::MaxAbsDifference;
using testing::RandomSource;
using testing::ToDouble;

constexpr size_t kChunk = kOvqChunkTokens;

std::vector<float> NormalizedRows(const std::vector<float>& x, size_t length) {
  std::vector<float> unit(x.size());
  for (size_t first = 0; first < x.size(); first += length) {
    L2Normalize(absl::MakeConstSpan(x).subspan(first, length),
                absl::MakeSpan(unit).subspan(first, length));
  }
  return unit;
}

struct Chunk {
  Chunk(const OvqShape& shape, RandomSource* random)
      : raw_keys(random->Normals(kOvqChunkTokens * shape.key_dim)),
        raw_queries(random->Normals(kOvqChunkTokens * shape.key_dim)),
        keys(NormalizedRows(raw_keys, static_cast<size_t>(shape.key_dim))),
        queries(NormalizedRows(raw_queries, static_cast<size_t>(shape.key_dim))),
        values(random->Normals(kOvqChunkTokens * shape.value_dim)) {}

  OvqChunk View(int64_t size = kOvqChunkTokens) const { return {keys, values, size}; }

  std::vector<float> raw_keys, raw_queries, keys, queries, values;
};

std::vector<double> Row(const std::vector<float>& x, size_t row, int64_t length) {
  const auto first = x.begin() + static_cast<int64_t>(row) * length;
  return {first, first + length};
}

void ExpectFollowsReference(const OvqShape& shape, float beta, int num_chunks) {
  // Relative to the largest value; measured 1.4e-7 at beta 1 and 5.4e-7 at beta 4, which scales the
  // logits' rounding.
  const double tolerance = 16 * 0x1p-24 * std::max(1.0f, beta);
  const float logit_scale = beta * std::sqrt(static_cast<float>(shape.key_dim));
  OvqRef ref(shape, beta);
  OvqSlots slots;
  RandomSource random(1);
  for (int chunk_index = 0; chunk_index < num_chunks; ++chunk_index) {
    const Chunk chunk(shape, &random);
    std::vector<float> out(chunk.values.size());
    OvqRead(shape, logit_scale, slots, chunk.View(), 0, kOvqChunkTokens, chunk.queries,
            absl::MakeSpan(out));
    for (size_t t = 0; t < kChunk; ++t) {
      const std::vector<double> want =
          ref.Step(Row(chunk.raw_queries, t, shape.key_dim), Row(chunk.raw_keys, t, shape.key_dim),
                   Row(chunk.values, t, shape.value_dim));
      EXPECT_LE(MaxAbsDifference(Row(out, t, shape.value_dim), want),
                tolerance * MaxAbs(chunk.values));
    }
    std::vector<int32_t> assignment(kChunk);
    OvqMerge(shape, chunk_index * kOvqChunkTokens, chunk.View(), &slots,
             absl::MakeSpan(assignment));
    EXPECT_LE(ref.AssignmentShortfall(assignment), 8 * 0x1p-24);
    ref.Merge(assignment);
    ASSERT_EQ(static_cast<int64_t>(slots.counts.size()), ref.num_slots());
    ASSERT_EQ(ref.num_slots(), OvqNumSlots(shape.max_slots, (chunk_index + 1) * kOvqChunkTokens));
  }
  for (size_t n = 0; n < slots.counts.size(); ++n) {
    EXPECT_EQ(slots.counts[n], ref.counts()[n]);
    EXPECT_EQ(slots.log_counts[n], Log(static_cast<float>(slots.counts[n])));
    EXPECT_LE(MaxAbsDifference(Row(slots.keys, n, shape.key_dim), ref.slot_keys()[n]), 4e-7);
    EXPECT_LE(MaxAbsDifference(Row(slots.values, n, shape.value_dim), ref.slot_values()[n]), 8e-7);
  }
}

TEST(OvqTest, FollowsTheReference) {
  ExpectFollowsReference({8, 8, 16}, 1.0f, 30);
  ExpectFollowsReference({64, 64, 512}, 1.0f, 12);
  ExpectFollowsReference({16, 72, 100}, 4.0f, 20);
  ExpectFollowsReference({24, 8, 2}, 0.0f, 5);
}

TEST(OvqTest, BitsOfAReadDoNotDependOnTheCut) {
  const OvqShape shape{24, 40, 64};
  RandomSource random(2);
  OvqSlots slots;
  for (int chunk_index = 0; chunk_index < 4; ++chunk_index) {
    const Chunk chunk(shape, &random);
    std::vector<float> whole(chunk.values.size());
    OvqRead(shape, 5.0f, slots, chunk.View(), 0, kOvqChunkTokens, chunk.queries,
            absl::MakeSpan(whole));
    for (int64_t cut : {1, 2, 3, 5, 63}) {
      std::vector<float> out(whole.size());
      for (int64_t first = 0; first < kOvqChunkTokens; first += cut) {
        const int64_t count = std::min(cut, kOvqChunkTokens - first);
        OvqRead(shape, 5.0f, slots, chunk.View(first + count), first, count,
                absl::MakeConstSpan(chunk.queries)
                    .subspan(static_cast<size_t>(first * shape.key_dim),
                             static_cast<size_t>(count * shape.key_dim)),
                absl::MakeSpan(out).subspan(static_cast<size_t>(first * shape.value_dim),
                                            static_cast<size_t>(count * shape.value_dim)));
      }
      EXPECT_EQ(out, whole) << cut;
    }
    OvqMerge(shape, chunk_index * kOvqChunkTokens, chunk.View(), &slots, {});
  }
}

// A merge after the first, written down plainly: Dot has the order of summation that ovq.h
// promises.
OvqSlots PlainMerge(const OvqShape& shape, size_t num_new, const Chunk& chunk, OvqSlots slots) {
  const auto key_dim = static_cast<size_t>(shape.key_dim);
  const auto value_dim = static_cast<size_t>(shape.value_dim);
  const auto row = [](const std::vector<float>& x, size_t index, size_t size) {
    return absl::MakeConstSpan(x).subspan(index * size, size);
  };
  const size_t num_old = slots.counts.size();
  std::vector<size_t> joined(kChunk);
  std::vector<std::pair<float, size_t>> order;
  for (size_t i = 0; i < kChunk; ++i) {
    std::vector<float> dots;
    for (size_t n = 0; n < num_old; ++n) {
      dots.push_back(Dot(row(chunk.keys, i, key_dim), row(slots.keys, n, key_dim)));
    }
    const auto best = std::max_element(dots.begin(), dots.end());
    joined[i] = static_cast<size_t>(best - dots.begin());
    order.emplace_back(*best, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<size_t> seeds;
  for (size_t n = 0; n < num_new; ++n) seeds.push_back(order[n].second);
  std::sort(seeds.begin(), seeds.end());
  const OvqSlots old = slots;
  for (size_t n = 0; n < num_old; ++n) {
    std::vector<float> key_sum(key_dim);
    std::vector<float> value_sum(value_dim);
    int32_t count = 0;
    for (size_t i = 0; i < kChunk; ++i) {
      if (joined[i] != n || std::binary_search(seeds.begin(), seeds.end(), i)) continue;
      ++count;
      for (size_t j = 0; j < key_dim; ++j) key_sum[j] += chunk.keys[i * key_dim + j];
      for (size_t j = 0; j < value_dim; ++j) value_sum[j] += chunk.values[i * value_dim + j];
    }
    if (count == 0) continue;
    slots.counts[n] += count;
    slots.log_counts[n] = Log(static_cast<float>(slots.counts[n]));
    const auto mean = [&](float before, float sum) {
      return std::fma(static_cast<float>(old.counts[n]), before, sum) /
             static_cast<float>(slots.counts[n]);
    };
    for (size_t j = 0; j < key_dim; ++j) {
      slots.keys[n * key_dim + j] = mean(old.keys[n * key_dim + j], key_sum[j]);
    }
    for (size_t j = 0; j < value_dim; ++j) {
      slots.values[n * value_dim + j] = mean(old.values[n * value_dim + j], value_sum[j]);
    }
  }
  for (size_t seed : seeds) {
    const auto key = row(chunk.keys, seed, key_dim);
    const auto value = row(chunk.values, seed, value_dim);
    slots.keys.insert(slots.keys.end(), key.begin(), key.end());
    slots.values.insert(slots.values.end(), value.begin(), value.end());
    slots.counts.push_back(1);
    slots.log_counts.push_back(0.0f);
  }
  return slots;
}

TEST(OvqTest, MergesHaveTheBitsOfPlainLoops) {
  RandomSource random(5);
  for (const OvqShape& shape :
       {OvqShape{64, 64, 200}, OvqShape{64, 8, 2}, OvqShape{8, 16, 7}, OvqShape{72, 24, 60}}) {
    OvqSlots slots;
    for (int64_t t = 0; t < 8 * kOvqChunkTokens; t += kOvqChunkTokens) {
      Chunk chunk(shape, &random);
      // Copies within the chunk and of a slot's key: ties, and similarities equal to others.
      const auto key_dim = static_cast<size_t>(shape.key_dim);
      for (size_t i = 0; i < 10; ++i) {
        const float* from = i % 2 == 0 || t == 0 ? chunk.keys.data() : slots.keys.data();
        std::copy_n(from, key_dim, &chunk.keys[(11 + 5 * i) * key_dim]);
      }
      const auto num_new = static_cast<size_t>(OvqNumSlots(shape.max_slots, t + kOvqChunkTokens) -
                                               OvqNumSlots(shape.max_slots, t));
      const OvqSlots want = t == 0 ? OvqSlots() : PlainMerge(shape, num_new, chunk, slots);
      OvqMerge(shape, t, chunk.View(), &slots, {});
      if (t == 0) continue;
      EXPECT_EQ(slots.counts, want.counts);
      EXPECT_EQ(slots.log_counts, want.log_counts);
      EXPECT_EQ(slots.keys, want.keys);
      EXPECT_EQ(slots.values, want.values);
    }
  }
}

// All similarities tie: seeds are the lowest ranks, every other token joins the lowest slot.
TEST(OvqTest, IdenticalTokensFollowTheTieRules) {
  const OvqShape shape{8, 8, 16};
  RandomSource random(3);
  Chunk chunk(shape, &random);
  for (size_t i = 8; i < chunk.keys.size(); ++i) chunk.keys[i] = chunk.keys[i % 8];
  for (size_t i = 8; i < chunk.values.size(); ++i) chunk.values[i] = chunk.values[i % 8];
  OvqSlots slots;
  std::vector<int32_t> assignment(kChunk);
  OvqMerge(shape, 0, chunk.View(), &slots, absl::MakeSpan(assignment));
  const auto num_first = static_cast<size_t>(OvqNumSlots(16, 64));
  for (size_t i = 0; i < kChunk; ++i) {
    EXPECT_EQ(assignment[i], i < num_first ? ~static_cast<int32_t>(i) : 0);
  }
  OvqMerge(shape, 64, chunk.View(), &slots, absl::MakeSpan(assignment));
  const auto num_second = static_cast<size_t>(OvqNumSlots(16, 128));
  // Slot 0 is a mean of equal keys; its rounding may make it differ from the seeds' bits, but not
  // from itself.
  for (size_t i = 0; i < kChunk; ++i) {
    const bool is_seed = i < num_second - num_first;
    if (is_seed) {
      EXPECT_EQ(assignment[i], ~static_cast<int32_t>(num_first + i));
    } else {
      EXPECT_EQ(assignment[i], assignment[kChunk - 1]);
    }
  }
  EXPECT_EQ(slots.counts.size(), num_second);
}

// Two halves of the chunk are copies of two orthogonal keys, whose means are exact.
TEST(OvqTest, TiesAmongSeedsGoToTheLowestRankAndAmongSlotsToTheLowestSlot) {
  const OvqShape shape{8, 8, 4};
  std::vector<float> keys(kChunk * 8);
  std::vector<float> values(kChunk * 8, 1.0f);
  for (size_t i = 0; i < kChunk; ++i) keys[i * 8 + i % 2] = 1.0f;
  OvqSlots slots;
  std::vector<int32_t> assignment(kChunk);
  OvqMerge(shape, 0, {keys, values, kOvqChunkTokens}, &slots, absl::MakeSpan(assignment));
  // floor(4 * 64 / 68) = 3 slots: token 0, then the least similar to it: the odd ranks, lowest
  // first.
  ASSERT_EQ(slots.counts.size(), 3u);
  for (size_t i = 0; i < kChunk; ++i) {
    const int32_t seed[] = {~0, ~1, 0, ~2};
    EXPECT_EQ(assignment[i], i < 4 ? seed[i] : static_cast<int32_t>(i % 2)) << i;
  }
  EXPECT_EQ(slots.counts, (std::vector<int32_t>{32, 31, 1}));
  EXPECT_EQ(slots.keys[0], 1.0f);
  EXPECT_EQ(slots.keys[8 + 1], 1.0f);
  // No new slot in the second chunk; odd tokens tie between slots 1 and 2 and take 1.
  OvqMerge(shape, 64, {keys, values, kOvqChunkTokens}, &slots, absl::MakeSpan(assignment));
  for (size_t i = 0; i < kChunk; ++i) EXPECT_EQ(assignment[i], static_cast<int32_t>(i % 2));
  EXPECT_EQ(slots.counts, (std::vector<int32_t>{64, 63, 1}));
}

TEST(OvqTest, SeedsEqualTheirTokenBitForBit) {
  const OvqShape shape{16, 24, 64};
  RandomSource random(4);
  OvqSlots slots;
  OvqMerge(shape, 0, Chunk(shape, &random).View(), &slots, {});
  const Chunk chunk(shape, &random);
  const size_t num_old = slots.counts.size();
  std::vector<int32_t> assignment(kChunk);
  OvqMerge(shape, 64, chunk.View(), &slots, absl::MakeSpan(assignment));
  size_t num_seeds = 0;
  for (size_t i = 0; i < kChunk; ++i) {
    if (assignment[i] >= 0) continue;
    const auto slot = static_cast<size_t>(~assignment[i]);
    EXPECT_EQ(slot, num_old + num_seeds++) << "slots are taken in rank order";
    EXPECT_EQ(Row(slots.keys, slot, 16), Row(chunk.keys, i, 16));
    EXPECT_EQ(Row(slots.values, slot, 24), Row(chunk.values, i, 24));
    EXPECT_EQ(slots.counts[slot], 1);
  }
  EXPECT_EQ(slots.counts.size(), num_old + num_seeds);
}

TEST(OvqTest, ZeroKeysAndValuesAreHarmless) {
  const OvqShape shape{8, 8, 4};
  const std::vector<float> zeros(kChunk * 8);
  OvqSlots slots;
  for (int chunk_index = 0; chunk_index < 3; ++chunk_index) {
    std::vector<float> out(zeros.size(), 1.0f);
    OvqRead(shape, 2.0f, slots, {zeros, zeros, kOvqChunkTokens}, 0, kOvqChunkTokens, zeros,
            absl::MakeSpan(out));
    EXPECT_EQ(out, zeros);
    OvqMerge(shape, chunk_index * kOvqChunkTokens, {zeros, zeros, kOvqChunkTokens}, &slots, {});
  }
}

TEST(OvqDeathTest, WrongSizesAreCallerBugs) {
  const OvqShape shape{8, 8, 4};
  const std::vector<float> zeros(kChunk * 8);
  OvqSlots slots;
  std::vector<float> out(8);
  EXPECT_DEATH(OvqRead(shape, 1.0f, slots, {zeros, zeros, 3}, 3, 1,
                       absl::MakeConstSpan(zeros).first(8), absl::MakeSpan(out)),
               "check failed");
  EXPECT_DEATH(OvqMerge(shape, 0, {zeros, zeros, 63}, &slots, {}), "check failed");
}

}  // namespace
}  // namespace lethe
