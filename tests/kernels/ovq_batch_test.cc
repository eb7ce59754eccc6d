// Goal: OvqBatch follows the double reference on every device, its states are the means of their
// assignments bit for bit, and ties, empty sessions and bad arguments are treated as promised.
// Method: the reference replays the device's assignments, each within rounding of the best; plain
// loops replay them in f32; hand-made keys for the ties. ovq_batch_bits_test.cc has the cuts and
// batches.
#include <string>

#include "kernels/ovq/ovq_ref.h"
#include "tests/kernels/ovq_sessions.h"

namespace lethe {
namespace {

using testing::Calls;
using testing::kHeads;
using testing::MaxAbs;
using testing::MaxAbsDifference;
using testing::RandomSource;
using testing::RandomTokens;
using testing::Tokens;

class OvqBatchTest : public testing::OvqBatchFixture {
 protected:
  void ExpectFollowsReference(const OvqShape& shape, float beta, int64_t num_tokens);
};
LETHE_ON_EVERY_DEVICE(OvqBatchTest);

std::vector<double> Row(const std::vector<float>& x, int64_t row, int64_t length) {
  return {x.begin() + row * length, x.begin() + (row + 1) * length};
}

void OvqBatchTest::ExpectFollowsReference(const OvqShape& shape, float beta, int64_t num_tokens) {
  SCOPED_TRACE("K " + std::to_string(shape.key_dim) + " V " + std::to_string(shape.value_dim) +
               " N " + std::to_string(shape.max_slots) + " L " +
               std::to_string(shape.chunk_tokens));
  const bool is_cuda = GetParam() == DeviceKind::kCuda;
  const float logit_scale = beta * std::sqrt(static_cast<float>(shape.key_dim));
  // Relative to the largest value. CUDA: weights and values of 11 bits, and operands of 11 bits in
  // the logits, whose errors mostly cancel in a dot product; see the header.
  const double tolerance =
      is_cuda ? 0x1p-10 + 0x1p-13 * double{logit_scale} : 16 * 0x1p-24 * std::max(1.0f, beta);
  const double shortfall = is_cuda ? 0x1p-11 : 8 * 0x1p-24;
  RandomSource random(11);
  const Tokens tokens = RandomTokens(shape, num_tokens, &random);
  Pool pool = MakePool(shape, logit_scale, 1);
  const Calls calls = Run({tokens}, {0}, &pool);
  const std::vector<float> keys = OnHost(pool.keys);
  const std::vector<float> values = OnHost(pool.values);
  const std::vector<int32_t> counts = OnHost(pool.counts);
  const int64_t num_merges = num_tokens / shape.chunk_tokens;
  double worst_read = 0.0;
  double worst_shortfall = 0.0;
  for (int64_t head = 0; head < kHeads; ++head) {
    OvqRef ref(shape, beta);
    for (int64_t t = 0; t < num_tokens; ++t) {
      const int64_t row = t * kHeads + head;
      const std::vector<double> want =
          ref.Step(Row(tokens.q, row, shape.key_dim), Row(tokens.k, row, shape.key_dim),
                   Row(tokens.v, row, shape.value_dim));
      worst_read =
          std::max(worst_read,
                   MaxAbsDifference(Row(calls.out, row, shape.value_dim), want) / MaxAbs(tokens.v));
      if ((t + 1) % shape.chunk_tokens != 0) continue;
      const int64_t place = (t / shape.chunk_tokens * kHeads + head) * shape.chunk_tokens;
      const auto first = calls.assignments.begin() + place;
      const std::vector<int32_t> assignment(first, first + shape.chunk_tokens);
      worst_shortfall = std::max(worst_shortfall, ref.AssignmentShortfall(assignment));
      ref.Merge(assignment);
    }
    ASSERT_EQ(ref.num_slots(), OvqNumSlots(shape.max_slots, num_merges * shape.chunk_tokens));
    ASSERT_EQ(ref.num_slots(), OvqFilledSlots(shape, num_tokens));
    for (int64_t n = 0; n < shape.max_slots; ++n) {
      const int64_t row = head * shape.max_slots + n;
      const auto slot = static_cast<size_t>(n);
      if (n >= ref.num_slots()) {
        EXPECT_EQ(counts[static_cast<size_t>(row)], 0);
        continue;
      }
      EXPECT_EQ(counts[static_cast<size_t>(row)], ref.counts()[slot]);
      EXPECT_LE(MaxAbsDifference(Row(keys, row, shape.key_dim), ref.slot_keys()[slot]), 4e-7);
      EXPECT_LE(MaxAbsDifference(Row(values, row, shape.value_dim), ref.slot_values()[slot]), 8e-7);
    }
  }
  EXPECT_LE(worst_read, tolerance);
  EXPECT_LE(worst_shortfall, shortfall);
  if (is_cuda) {
    std::printf("    read error %.2e of %.2e, shortfall %.2e of %.2e\n", worst_read, tolerance,
                worst_shortfall, shortfall);
  }
}

TEST_P(OvqBatchTest, FollowsTheReference) {
  ExpectFollowsReference({8, 8, 16, 64}, 1.0f, 64 * 12 + 1);
  ExpectFollowsReference({64, 64, 512, 64}, 1.0f, 64 * 8 + 63);
  ExpectFollowsReference({64, 64, 2048, 128}, 4.0f, 128 * 7 + 30);
  ExpectFollowsReference({128, 128, 700, 128}, 1.0f, 128 * 4 + 65);
  ExpectFollowsReference({16, 72, 100, 128}, 4.0f, 128 * 6 + 100);
  ExpectFollowsReference({96, 40, 90, 64}, 2.0f, 64 * 6);
  ExpectFollowsReference({24, 8, 2, 64}, 0.0f, 64 * 5 + 2);
}

// One head's slots, updated by plain loops in the order that ovq.h promises.
struct PlainSlots {
  std::vector<std::vector<float>> rows;  // keys, then values
  std::vector<int32_t> counts;

  void Merge(const std::vector<std::vector<float>>& tokens,
             const std::vector<int32_t>& assignment) {
    std::vector<std::vector<size_t>> joiners(counts.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (assignment[i] >= 0) continue;
      ASSERT_EQ(static_cast<size_t>(~assignment[i]), rows.size());
      rows.push_back(tokens[i]);
      counts.push_back(1);
      joiners.emplace_back();
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (assignment[i] >= 0) joiners[static_cast<size_t>(assignment[i])].push_back(i);
    }
    for (size_t n = 0; n < rows.size(); ++n) {
      if (joiners[n].empty()) continue;
      const auto before = static_cast<float>(counts[n]);
      counts[n] += static_cast<int32_t>(joiners[n].size());
      for (size_t j = 0; j < rows[n].size(); ++j) {
        float sum = 0.0f;
        for (size_t i : joiners[n]) sum += tokens[i][j];
        rows[n][j] = std::fma(before, rows[n][j], sum) / static_cast<float>(counts[n]);
      }
    }
  }
};

// On every device: a state's bits differ between devices only where an assignment does.
TEST_P(OvqBatchTest, StatesAreTheMeansOfTheirAssignmentsBitForBit) {
  for (const OvqShape& shape : {OvqShape{64, 64, 40, 64}, OvqShape{128, 24, 300, 128}}) {
    const int64_t num_merges = 6;
    RandomSource random(5);
    const Tokens tokens = RandomTokens(shape, shape.chunk_tokens * num_merges, &random);
    Pool pool = MakePool(shape, 8.0f, 1);
    const Calls calls = Run({tokens}, {0}, &pool);
    const std::vector<float> keys = OnHost(pool.keys);
    const std::vector<float> values = OnHost(pool.values);
    const std::vector<int32_t> counts = OnHost(pool.counts);
    const auto row_of = [](const std::vector<float>& x, int64_t row, int64_t length) {
      return std::vector<float>(x.begin() + row * length, x.begin() + (row + 1) * length);
    };
    const auto key_and_value = [&](const std::vector<float>& k, const std::vector<float>& v,
                                   int64_t row) {
      std::vector<float> both = row_of(k, row, shape.key_dim);
      const std::vector<float> value = row_of(v, row, shape.value_dim);
      both.insert(both.end(), value.begin(), value.end());
      return both;
    };
    for (int64_t head = 0; head < kHeads; ++head) {
      PlainSlots slots;
      for (int64_t chunk = 0; chunk < num_merges; ++chunk) {
        std::vector<std::vector<float>> chunk_tokens;
        for (int64_t t = 0; t < shape.chunk_tokens; ++t) {
          const int64_t token = chunk * shape.chunk_tokens + t;
          chunk_tokens.push_back(key_and_value(tokens.k, tokens.v, token * kHeads + head));
        }
        const auto first = calls.assignments.begin() + (chunk * kHeads + head) * shape.chunk_tokens;
        slots.Merge(chunk_tokens, {first, first + shape.chunk_tokens});
      }
      for (size_t n = 0; n < slots.rows.size(); ++n) {
        const int64_t row = head * shape.max_slots + static_cast<int64_t>(n);
        ASSERT_EQ(counts[static_cast<size_t>(row)], slots.counts[n]);
        ASSERT_EQ(key_and_value(keys, values, row), slots.rows[n]) << n;
      }
    }
  }
}

// Two orthogonal keys, copied through two chunks: see TiesAmongSeedsGoToTheLowestRank... of
// ovq_test.cc. Their values are the token's own rank.
TEST_P(OvqBatchTest, TiesGoToTheLowestSlotThenTheLowestRank) {
  for (int64_t chunk : {64, 128}) {
    const OvqShape shape{8, 8, 4, chunk};
    Tokens tokens;
    tokens.tokens = static_cast<size_t>(2 * chunk);
    const auto num_rows = static_cast<size_t>(2 * chunk * kHeads);
    tokens.k.resize(num_rows * 8);
    tokens.v.resize(num_rows * 8, 1.0f);
    for (size_t row = 0; row < num_rows; ++row) tokens.k[row * 8 + row / kHeads % 2] = 1.0f;
    tokens.q = tokens.k;
    Pool pool = MakePool(shape, 1.0f, 1);
    const Calls calls = Run({tokens}, {0}, &pool);
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t i = 0; i < chunk; ++i) {
        const int32_t seeds[] = {~0, ~1, 0, ~2};
        const auto parity = static_cast<int32_t>(i % 2);
        const auto at = [&](int64_t merge) {
          return calls.assignments[static_cast<size_t>((merge * kHeads + head) * chunk + i)];
        };
        EXPECT_EQ(at(0), i < 4 ? seeds[i] : parity) << i;
        EXPECT_EQ(at(1), parity) << i;
      }
    }
    const auto half = static_cast<int32_t>(chunk / 2);
    const std::vector<int32_t> want = {2 * half, 2 * half - 1, 1, 0};
    std::vector<int32_t> twice = want;
    twice.insert(twice.end(), want.begin(), want.end());
    EXPECT_EQ(OnHost(pool.counts), twice);
    for (float read : calls.out) EXPECT_NEAR(read, 1.0f, 0x1p-10f);
  }
}

TEST_P(OvqBatchTest, SessionsWithoutTokensKeepTheirState) {
  const OvqShape shape{16, 16, 20, 64};
  RandomSource random(6);
  Pool pool = MakePool(shape, 4.0f, 3);
  static_cast<void>(
      Run({RandomTokens(shape, 100, &random), RandomTokens(shape, 70, &random)}, {0, 1}, &pool));
  const std::vector<float> before = StateBits(pool, 1);
  static_cast<void>(
      Run({RandomTokens(shape, 64, &random), Tokens{}, RandomTokens(shape, 1, &random)}, {0, 1, 2},
          &pool));
  EXPECT_EQ(StateBits(pool, 1), before);
  EXPECT_TRUE(Run({}, {}, &pool).out.empty());
  EXPECT_TRUE(Run({Tokens{}}, {1}, &pool).out.empty());
}

TEST_P(OvqBatchTest, NothingOfAMergedChunkStaysPending) {
  const OvqShape shape{16, 16, 20, 64};
  RandomSource random(7);
  Pool pool = MakePool(shape, 4.0f, 1);
  static_cast<void>(Run({RandomTokens(shape, 60, &random)}, {0}, &pool));
  EXPECT_GT(MaxAbs(OnHost(pool.pending_keys)), 0.0);
  static_cast<void>(Run({RandomTokens(shape, 4, &random)}, {0}, &pool));
  EXPECT_EQ(MaxAbs(OnHost(pool.pending_keys)), 0.0);
  EXPECT_EQ(MaxAbs(OnHost(pool.pending_values)), 0.0);
}

TEST_P(OvqBatchTest, ANotANumberShows) {
  const OvqShape shape{64, 64, 100, 64};
  RandomSource random(8);
  for (int64_t length : {1, 40}) {
    Pool pool = MakePool(shape, 8.0f, 1);
    static_cast<void>(Run({RandomTokens(shape, 200, &random)}, {0}, &pool));
    Tokens tokens = RandomTokens(shape, length, &random);
    tokens.v.back() = NAN;
    const std::vector<float> out = Run({tokens}, {0}, &pool).out;
    EXPECT_TRUE(std::isnan(out.back()));
  }
}

TEST_P(OvqBatchTest, RejectsWhatItCannotDo) {
  const OvqShape good{16, 16, 20, 64};
  const OvqBatchSize size = {1, 1, 1, 1, 1, 0};
  const auto code = [&](const OvqShape& shape, const OvqBatchSize& batch) {
    return OvqBatch(queue(), shape, batch, {}, {}, nullptr, nullptr, {}).code();
  };
  const auto bad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code({12, 16, 20, 64}, size), bad);
  EXPECT_EQ(code({16, 136, 20, 64}, size), bad);
  EXPECT_EQ(code({16, 16, 0, 64}, size), bad);
  EXPECT_EQ(code({16, 16, 20, 96}, size), bad);
  EXPECT_EQ(code(good, {0, 1, 1, 1, 1, 0}), bad);
  EXPECT_EQ(code(good, {1, -1, 1, 1, 1, 0}), bad);
  EXPECT_EQ(code(good, {1, 1, 1, 2, 2, 0}), bad);
  EXPECT_EQ(code(good, {1, 1, 2, 2, 1, 0}), bad);
  if (GetParam() == DeviceKind::kCuda) {
    EXPECT_EQ(code(good, size), bad) << "no workspace";
  }
}

}  // namespace
}  // namespace lethe
