// Goal: OvqBatch follows the double reference on every device, and no bit of a read or a state
// depends on the batch, on where its state lies or on the cut into calls.
// Method: the reference replays the device's assignments, each within rounding of the best; every
// session is run alone, in batches and cut in many ways and compared bit for bit; hand-made keys for
// the ties.
#include "kernels/ovq/ovq_batch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "gtest/gtest.h"

#include "kernels/math/math.h"
#include "kernels/ovq/ovq_ref.h"
#include "tests/kernels/stream_inputs.h"
#include "tests/testing/device_test.h"

namespace lethe {
namespace {

using testing::MaxAbs;
using testing::MaxAbsDifference;
using testing::RandomSource;

constexpr int64_t kHeads = 2;

// One session's inputs, all heads: [T][H][K] and [T][H][V].
struct Tokens {
  std::vector<float> q, k, v;

  Tokens Slice(int64_t first, int64_t count) const {
    const auto size = static_cast<int64_t>(tokens);
    const auto cut = [&](const std::vector<float>& x) {
      const auto row = static_cast<int64_t>(x.size()) / size;
      return std::vector<float>(x.begin() + first * row, x.begin() + (first + count) * row);
    };
    return {cut(q), cut(k), cut(v), static_cast<size_t>(count)};
  }

  size_t tokens = 0;
};

std::vector<float> Units(std::vector<float> x, int64_t length) {
  const auto row = static_cast<size_t>(length);
  for (size_t i = 0; i < x.size(); i += row) {
    L2Normalize(absl::MakeConstSpan(x).subspan(i, row), absl::MakeSpan(x).subspan(i, row));
  }
  return x;
}

Tokens RandomTokens(const OvqShape& shape, int64_t count, RandomSource* random) {
  return {Units(random->Normals(count * kHeads * shape.key_dim), shape.key_dim),
          Units(random->Normals(count * kHeads * shape.key_dim), shape.key_dim),
          random->Normals(count * kHeads * shape.value_dim), static_cast<size_t>(count)};
}

struct Calls {
  std::vector<float> out;
  std::vector<int32_t> assignments;  // [merges][H][L] of a single session
};

class OvqBatchTest : public testing::DeviceTest {
 protected:
  // Sessions in a pool on the device.
  struct Pool {
    OvqShape shape;
    float logit_scale = 1.0f;
    std::vector<int64_t> num_tokens;  // [states]
    DeviceArray<float> keys, values, pending_keys, pending_values;
    DeviceArray<int32_t> counts;
  };

  Pool MakePool(const OvqShape& shape, float logit_scale, size_t num_states) {
    const auto size = [&](int64_t rows, int64_t columns) {
      return num_states * static_cast<size_t>(kHeads * rows * columns);
    };
    Pool pool;
    pool.shape = shape;
    pool.logit_scale = logit_scale;
    pool.num_tokens.resize(num_states);
    pool.keys = ZerosOnDevice<float>(size(shape.max_slots, shape.key_dim));
    pool.values = ZerosOnDevice<float>(size(shape.max_slots, shape.value_dim));
    pool.counts = ZerosOnDevice<int32_t>(size(shape.max_slots, 1));
    pool.pending_keys = ZerosOnDevice<float>(size(shape.chunk_tokens, shape.key_dim));
    pool.pending_values = ZerosOnDevice<float>(size(shape.chunk_tokens, shape.value_dim));
    return pool;
  }

  // One call: tokens of several sessions, each with its state.
  Calls Run(const std::vector<Tokens>& sessions, const std::vector<int32_t>& states, Pool* pool,
            int64_t segment_chunks = 0) {
    OvqBatchSize size;
    size.num_heads = kHeads;
    size.num_sequences = static_cast<int64_t>(sessions.size());
    size.segment_chunks = segment_chunks;
    std::vector<int32_t> offsets = {0};
    std::vector<int64_t> before;
    Tokens all;
    for (size_t i = 0; i < sessions.size(); ++i) {
      const Tokens& session = sessions[i];
      all.q.insert(all.q.end(), session.q.begin(), session.q.end());
      all.k.insert(all.k.end(), session.k.begin(), session.k.end());
      all.v.insert(all.v.end(), session.v.begin(), session.v.end());
      offsets.push_back(offsets.back() + static_cast<int32_t>(session.tokens));
      int64_t& num_tokens = pool->num_tokens[static_cast<size_t>(states[i])];
      before.push_back(num_tokens);
      num_tokens += static_cast<int64_t>(session.tokens);
      size.max_length = std::max(size.max_length, static_cast<int64_t>(session.tokens));
      size.max_tokens_after = std::max(size.max_tokens_after, num_tokens);
    }
    size.num_tokens = offsets.back();
    const OvqShape& shape = pool->shape;
    const int64_t max_merges = (size.max_length + shape.chunk_tokens - 1) / shape.chunk_tokens;
    const auto device_offsets = OnDevice(offsets);
    const auto device_states = OnDevice(states);
    const auto device_before = OnDevice(before);
    const auto scales = OnDevice(std::vector<float>(kHeads, pool->logit_scale));
    const auto q = OnDevice(all.q);
    const auto k = OnDevice(all.k);
    const auto v = OnDevice(all.v);
    // Poisoned: what is not written shows.
    auto out = OnDevice(std::vector<float>(all.v.size(), NAN));
    auto assignments = OnDevice(std::vector<int32_t>(
        static_cast<size_t>(size.num_sequences * max_merges * kHeads * shape.chunk_tokens), -7));
    auto workspace = ZerosOnDevice<char>(OvqWorkspaceBytes(GetParam(), shape, size));
    const OvqInputs inputs = {device_offsets.data(),
                              device_states.data(),
                              device_before.data(),
                              scales.data(),
                              q.data(),
                              k.data(),
                              v.data()};
    const absl::Status status = OvqBatch(queue(), shape, size, inputs, States(pool), out.data(),
                                         assignments.data(), {workspace.data(), workspace.size()});
    EXPECT_TRUE(status.ok()) << status;
    return {OnHost(out), OnHost(assignments)};
  }

  static OvqStates States(Pool* pool) {
    return {static_cast<int64_t>(pool->num_tokens.size()),
            pool->keys.data(),
            pool->values.data(),
            pool->counts.data(),
            pool->pending_keys.data(),
            pool->pending_values.data()};
  }

  // All bytes of a state, in use or not.
  std::vector<float> StateBits(const Pool& pool, int32_t state) {
    std::vector<float> bits;
    const auto append = [&](const auto& array) {
      const auto values = OnHost(array);
      const size_t size = values.size() / pool.num_tokens.size();
      for (size_t i = 0; i < size; ++i) {
        bits.push_back(static_cast<float>(values[static_cast<size_t>(state) * size + i]));
      }
    };
    append(pool.keys);
    append(pool.values);
    append(pool.counts);
    append(pool.pending_keys);
    append(pool.pending_values);
    return bits;
  }

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
  RecordProperty("worst_read", std::to_string(worst_read));
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

TEST_P(OvqBatchTest, NoBitDependsOnTheCut) {
  for (const OvqShape& shape :
       {OvqShape{64, 64, 300, 128}, OvqShape{24, 40, 64, 64}, OvqShape{128, 128, 200, 64}}) {
    RandomSource random(2);
    const int64_t num_tokens = 4 * shape.chunk_tokens + 9;
    const Tokens tokens = RandomTokens(shape, num_tokens, &random);
    Pool pool = MakePool(shape, 5.0f, 1);
    const std::vector<float> whole = Run({tokens}, {0}, &pool).out;
    const std::vector<float> whole_state = StateBits(pool, 0);
    for (int64_t cut : {1, 2, 7, 63, 64, 65, 130, 500}) {
      Pool cut_pool = MakePool(shape, 5.0f, 1);
      std::vector<float> out;
      for (int64_t first = 0; first < num_tokens; first += cut) {
        const int64_t count = std::min(cut, num_tokens - first);
        const Calls part = Run({tokens.Slice(first, count)}, {0}, &cut_pool, cut % 3);
        out.insert(out.end(), part.out.begin(), part.out.end());
      }
      EXPECT_EQ(out, whole) << cut;
      EXPECT_EQ(StateBits(cut_pool, 0), whole_state) << cut;
    }
  }
}

// Sessions of all lengths prefill together, in states of their own in any order, then decode
// together; each of those that are checked has the bits of a session alone.
TEST_P(OvqBatchTest, NoBitDependsOnTheBatch) {
  const bool is_cuda = GetParam() == DeviceKind::kCuda;
  const OvqShape shape = is_cuda ? OvqShape{64, 64, 600, 128} : OvqShape{16, 8, 24, 64};
  for (size_t batch : {2, 3, 17, 64, 256}) {
    RandomSource random(batch);
    std::vector<Tokens> prompts;
    std::vector<Tokens> first_steps;
    std::vector<Tokens> second_steps;
    std::vector<int32_t> states;
    for (size_t i = 0; i < batch; ++i) {
      prompts.push_back(RandomTokens(shape, static_cast<int64_t>(i * 37 % 400), &random));
      first_steps.push_back(RandomTokens(shape, 1, &random));
      // Some sessions bring more tokens than one.
      second_steps.push_back(RandomTokens(shape, i % 5 == 4 ? 70 : 1, &random));
      states.push_back(static_cast<int32_t>(batch - 1 - i));
    }
    Pool pool = MakePool(shape, 6.0f, batch);
    const std::vector<float> prompt_out = Run(prompts, states, &pool).out;
    const std::vector<float> first_out = Run(first_steps, states, &pool).out;
    const std::vector<float> second_out = Run(second_steps, states, &pool).out;
    const auto part_of = [&](const std::vector<Tokens>& sessions, const std::vector<float>& out,
                             size_t index) {
      size_t first = 0;
      for (size_t i = 0; i < index; ++i) first += sessions[i].v.size();
      const auto begin = out.begin() + static_cast<ptrdiff_t>(first);
      return std::vector<float>(begin, begin + static_cast<ptrdiff_t>(sessions[index].v.size()));
    };
    for (size_t i = 0; i < batch; i += std::max<size_t>(1, batch / 9)) {
      Pool alone = MakePool(shape, 6.0f, 1);
      EXPECT_EQ(part_of(prompts, prompt_out, i), Run({prompts[i]}, {0}, &alone).out);
      EXPECT_EQ(part_of(first_steps, first_out, i), Run({first_steps[i]}, {0}, &alone).out);
      EXPECT_EQ(part_of(second_steps, second_out, i), Run({second_steps[i]}, {0}, &alone).out);
      EXPECT_EQ(StateBits(pool, states[i]), StateBits(alone, 0)) << i << " of " << batch;
    }
  }
}

// A decode of many sessions with all their slots in use takes one block a head, one of few several.
TEST_P(OvqBatchTest, AStepHasTheSameBitsInAnyBatch) {
  const bool is_cuda = GetParam() == DeviceKind::kCuda;
  for (const OvqShape& shape : {OvqShape{64, 64, 700, 64}, OvqShape{128, 128, 700, 64}}) {
    if (!is_cuda && shape.key_dim > 64) continue;
    const size_t batch = is_cuda ? 256 : 3;
    RandomSource random(4);
    const Tokens prompt = RandomTokens(shape, 1000, &random);
    const Tokens step = RandomTokens(shape, 1, &random);
    Pool alone = MakePool(shape, 8.0f, 1);
    static_cast<void>(Run({prompt}, {0}, &alone));
    const std::vector<float> want = Run({step}, {0}, &alone).out;
    Pool pool = MakePool(shape, 8.0f, batch);
    std::vector<int32_t> states(batch);
    std::iota(states.begin(), states.end(), 0);
    static_cast<void>(Run(std::vector<Tokens>(batch, prompt), states, &pool));
    const std::vector<float> out = Run(std::vector<Tokens>(batch, step), states, &pool).out;
    for (size_t i = 0; i < batch; ++i) {
      const auto first = out.begin() + static_cast<ptrdiff_t>(i * want.size());
      ASSERT_EQ(std::vector<float>(first, first + static_cast<ptrdiff_t>(want.size())), want) << i;
    }
  }
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
