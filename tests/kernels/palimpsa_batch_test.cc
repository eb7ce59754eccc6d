// Goal: on every device the batched form of Palimpsa follows the double reference, and a session's
// bits are a function of its own tokens.
// Method: random sessions in shuffled slots; the same sessions alone, in batches of up to 256, in
// every cut into calls, with and without reads; the CPU's state, bit for bit; hostile values.
#include "kernels/palimpsa/palimpsa_batch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "gtest/gtest.h"

#include "kernels/palimpsa/palimpsa_cuda.h"
#include "kernels/palimpsa/palimpsa_ref.h"
#include "tests/kernels/stream_inputs.h"
#include "tests/testing/device_test.h"

namespace lethe {
namespace {

using testing::MaxAbs;
using testing::MaxAbsDifference;
using testing::RandomSource;
using testing::ToDouble;

struct Tokens {
  int64_t count = 0;
  std::vector<float> q, k, value, log_decay, precision;
};

Tokens RandomTokens(const PalimpsaShape& shape, int64_t count, uint64_t seed,
                    float precision_max = 1.0f) {
  RandomSource random(seed);
  const int64_t heads = count * shape.num_heads;
  return {count,
          random.Rows(heads, shape.key_dim, 1.0),
          random.Rows(heads, shape.key_dim, 1.0),
          random.Normals(heads * shape.value_dim),
          random.Uniforms(heads, -0.2f, -0.001f),
          random.Uniforms(heads * shape.value_dim, 0.0f, precision_max)};
}

// What one session read and its state at the end.
struct Session {
  std::vector<float> out, m, i_bar;
  bool operator==(const Session&) const = default;
};

struct RunOptions {
  std::vector<int64_t> cuts = {int64_t{1} << 40};  // tokens of every session a call, in turn
  bool has_precision = true;
  bool reads = true;
  PalimpsaTuning tuning = {};
};

// Any finite value that no test gets by itself.
constexpr float kForeign = 7.25f;

// Tokens [first, last) of a session's array, put behind `to`.
void AppendPart(const std::vector<float>& from, int64_t per_token, int64_t first, int64_t last,
                std::vector<float>* to) {
  to->insert(to->end(), from.begin() + first * per_token, from.begin() + last * per_token);
}

class PalimpsaFoldTest : public testing::DeviceTest {
 protected:
  absl::Status Fold(const PalimpsaShape& shape, const PalimpsaBatch& batch, float read_scale,
                    const PalimpsaTuning& tuning) {
#ifdef LETHE_CUDA
    if (queue()->kind() == DeviceKind::kCuda && batch.num_tokens > 0) {
      return PalimpsaFoldCuda(queue(), shape, batch, read_scale, tuning);
    }
#endif
    static_cast<void>(tuning);
    return PalimpsaFold(queue(), shape, batch, read_scale);
  }

  // Sessions from empty states, in slots of a larger pool whose other slots must stay as they are.
  std::vector<Session> Run(const PalimpsaShape& shape, const std::vector<Tokens>& sessions,
                           const RunOptions& options = {}) {
    const size_t num = sessions.size();
    const auto state_size = static_cast<size_t>(shape.num_heads * shape.value_dim * shape.key_dim);
    std::vector<int32_t> slots(num + 3);
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), std::mt19937(static_cast<unsigned>(num)));
    std::vector<float> pool((num + 3) * state_size, kForeign);
    for (size_t s = 0; s < num; ++s) {
      std::fill_n(pool.begin() + slots[s] * static_cast<int64_t>(state_size), state_size, 0.0f);
    }
    DeviceArray<float> m = OnDevice(pool);
    DeviceArray<float> i_bar = OnDevice(pool);
    const DeviceArray<int32_t> device_slots = OnDevice(slots);
    std::vector<Session> results(num);
    std::vector<int64_t> positions(num);
    for (size_t call = 0;
         Call(shape, sessions, options, call, device_slots, &positions, &m, &i_bar, &results);
         ++call) {
    }
    const std::vector<float> all_m = OnHost(m);
    const std::vector<float> all_i_bar = OnHost(i_bar);
    for (size_t s = 0; s < slots.size(); ++s) {
      const auto part = [&](const std::vector<float>& all) {
        const auto first = all.begin() + slots[s] * static_cast<int64_t>(state_size);
        return std::vector<float>(first, first + static_cast<int64_t>(state_size));
      };
      if (s < num) {
        results[s].m = part(all_m);
        if (options.has_precision) results[s].i_bar = part(all_i_bar);
      } else {
        EXPECT_EQ(part(all_m), std::vector<float>(state_size, kForeign));
        EXPECT_EQ(part(all_i_bar), std::vector<float>(state_size, kForeign));
      }
    }
    return results;
  }

  Session RunAlone(const PalimpsaShape& shape, const Tokens& tokens,
                   const RunOptions& options = {}) {
    return Run(shape, {tokens}, options)[0];
  }

 private:
  // One call; false when no session has tokens left.
  bool Call(const PalimpsaShape& shape, const std::vector<Tokens>& sessions,
            const RunOptions& options, size_t call, const DeviceArray<int32_t>& slots,
            std::vector<int64_t>* positions, DeviceArray<float>* m, DeviceArray<float>* i_bar,
            std::vector<Session>* results) {
    const int64_t keys = shape.num_heads * shape.key_dim;
    const int64_t values = shape.num_heads * shape.value_dim;
    std::vector<float> q, k, value, log_decay, precision;
    std::vector<int32_t> offsets = {0};
    PalimpsaBatch batch;
    for (size_t s = 0; s < sessions.size(); ++s) {
      const Tokens& tokens = sessions[s];
      const int64_t first = (*positions)[s];
      const int64_t last = std::min(tokens.count, first + options.cuts[call % options.cuts.size()]);
      AppendPart(tokens.q, keys, first, last, &q);
      AppendPart(tokens.k, keys, first, last, &k);
      AppendPart(tokens.value, values, first, last, &value);
      AppendPart(tokens.log_decay, shape.num_heads, first, last, &log_decay);
      AppendPart(tokens.precision, values, first, last, &precision);
      offsets.push_back(offsets.back() + static_cast<int32_t>(last - first));
      batch.max_length = std::max(batch.max_length, last - first);
      (*positions)[s] = last;
    }
    if (offsets.back() == 0) return false;
    const DeviceArray<float> device_q = OnDevice(q), device_k = OnDevice(k);
    const DeviceArray<float> device_value = OnDevice(value), device_decay = OnDevice(log_decay);
    const DeviceArray<float> device_precision = OnDevice(precision);
    const DeviceArray<int32_t> device_offsets = OnDevice(offsets);
    DeviceArray<float> out = OnDevice(std::vector<float>(value.size(), kForeign));
    batch.k = device_k.data();
    batch.value = device_value.data();
    batch.log_decay = device_decay.data();
    batch.offsets = device_offsets.data();
    batch.slots = slots.data();
    batch.num_sequences = static_cast<int64_t>(sessions.size());
    batch.num_tokens = offsets.back();
    batch.m = m->data();
    if (options.has_precision) {
      batch.precision = device_precision.data();
      batch.i_bar = i_bar->data();
    }
    if (options.reads) {
      batch.q = device_q.data();
      batch.out = out.data();
    }
    EXPECT_TRUE(Fold(shape, batch, 0.125f, options.tuning).ok());
    const std::vector<float> reads = OnHost(out);
    for (size_t s = 0; options.reads && s < sessions.size(); ++s) {
      AppendPart(reads, values, offsets[s], offsets[s + 1], &(*results)[s].out);
    }
    EXPECT_TRUE(queue()->Finish().ok());
    return true;
  }
};

LETHE_ON_EVERY_DEVICE(PalimpsaFoldTest);

TEST_P(PalimpsaFoldTest, FollowsTheReference) {
  for (const PalimpsaShape& shape :
       {PalimpsaShape{1, 8, 8}, PalimpsaShape{3, 16, 24}, PalimpsaShape{2, 64, 64},
        PalimpsaShape{1, 128, 64}, PalimpsaShape{1, 104, 128}, PalimpsaShape{2, 40, 72}}) {
    for (const int64_t count : {5, 211}) {
      const Tokens tokens = RandomTokens(shape, count, 1);
      const Session run = RunAlone(shape, tokens);
      const PalimpsaRefResult want =
          PalimpsaRefRecurrent({shape, 0.125},
                               {ToDouble(tokens.q), ToDouble(tokens.k), ToDouble(tokens.value),
                                ToDouble(tokens.log_decay), ToDouble(tokens.precision)},
                               count);
      // Rounding of M and I compounds over the decay's window, some tens of tokens here.
      constexpr double kTolerance = 32 * 0x1p-24;
      EXPECT_LE(MaxAbsDifference(run.out, want.out), kTolerance * MaxAbs(want.out));
      EXPECT_LE(MaxAbsDifference(run.m, want.m), kTolerance * MaxAbs(want.m));
      EXPECT_LE(MaxAbsDifference(run.i_bar, want.i_bar), kTolerance * MaxAbs(want.i_bar));
      EXPECT_GT(MaxAbs(want.out), 1e-3);
    }
  }
}

TEST_P(PalimpsaFoldTest, StatesHaveTheBitsOfTheCpu) {
  for (const PalimpsaShape& shape : {PalimpsaShape{2, 64, 64}, PalimpsaShape{1, 120, 40}}) {
    for (const int64_t count : {8, 100}) {
      Tokens tokens = RandomTokens(shape, count, 2);
      // The whole range of decays: none, much, underflow to none left.
      RandomSource random(3);
      for (float& x : tokens.log_decay) x = -std::exp2(random.Uniform(-30.0f, 8.0f));
      tokens.log_decay[0] = 0.0f;
      Session want{std::vector<float>(tokens.value.size()),
                   std::vector<float>(
                       static_cast<size_t>(shape.num_heads * shape.value_dim * shape.key_dim)),
                   {}};
      want.i_bar = want.m;
      PalimpsaRecurrent(
          shape, {tokens.q, tokens.k, tokens.value, tokens.log_decay, tokens.precision}, count,
          0.125f, absl::MakeSpan(want.m), absl::MakeSpan(want.i_bar), absl::MakeSpan(want.out));
      const Session run = RunAlone(shape, tokens);
      EXPECT_EQ(run.m, want.m);
      EXPECT_EQ(run.i_bar, want.i_bar);
    }
  }
}

TEST_P(PalimpsaFoldTest, BitsDoNotDependOnTheCut) {
  for (const PalimpsaShape& shape : {PalimpsaShape{2, 24, 16}, PalimpsaShape{1, 128, 32}}) {
    const Tokens tokens = RandomTokens(shape, 150, 4);
    for (const bool has_precision : {true, false}) {
      const Session whole = RunAlone(shape, tokens, {.has_precision = has_precision});
      for (const std::vector<int64_t>& cuts : std::vector<std::vector<int64_t>>{
               {1}, {8}, {9}, {31, 1}, {32}, {33, 7}, {64}, {1, 7, 65, 3}, {100, 1}}) {
        EXPECT_EQ(RunAlone(shape, tokens, {.cuts = cuts, .has_precision = has_precision}), whole);
      }
    }
  }
}

// Prefill and decode in one call, in every batch.
TEST_P(PalimpsaFoldTest, BitsDoNotDependOnTheBatch) {
  const PalimpsaShape shape{2, 24, 40};
  std::vector<Tokens> sessions;
  std::vector<Session> alone;
  const std::vector<int64_t> lengths = {1, 40, 2, 0, 8, 9, 1, 33, 1, 17, 70, 1};
  for (size_t s = 0; s < 256; ++s) {
    sessions.push_back(RandomTokens(shape, lengths[s % lengths.size()], 100 + s));
    alone.push_back(RunAlone(shape, sessions.back()));
  }
  for (const size_t batch : {2, 3, 16, 100, 256}) {
    for (const size_t first : {size_t{0}, size_t{256} - batch}) {
      const auto part = [&](const auto& all) {
        const auto begin = all.begin() + static_cast<int64_t>(first);
        return std::decay_t<decltype(all)>(begin, begin + static_cast<int64_t>(batch));
      };
      EXPECT_EQ(Run(shape, part(sessions)), part(alone)) << batch;
    }
  }
  // A pure decode batch.
  EXPECT_EQ(Run(shape, sessions, {.cuts = {1}}), alone);
}

TEST_P(PalimpsaFoldTest, WritesWithoutReadsGiveTheSameState) {
  const PalimpsaShape shape{2, 72, 24};
  std::vector<Tokens> sessions;
  for (const int64_t count : {1, 8, 9, 100}) {
    sessions.push_back(RandomTokens(shape, count, 5 + static_cast<uint64_t>(count)));
  }
  for (const bool has_precision : {true, false}) {
    std::vector<Session> want = Run(shape, sessions, {.has_precision = has_precision});
    for (Session& session : want) session.out.clear();
    EXPECT_EQ(Run(shape, sessions, {.has_precision = has_precision, .reads = false}), want);
  }
}

TEST_P(PalimpsaFoldTest, ZeroPrecisionHasTheBitsOfTheFormWithoutMetaplasticity) {
  const PalimpsaShape shape{2, 16, 8};
  for (const int64_t count : {3, 130}) {
    const Tokens tokens = RandomTokens(shape, count, 6, 0.0f);
    Session zero = RunAlone(shape, tokens);
    EXPECT_EQ(MaxAbs(zero.i_bar), 0.0);
    zero.i_bar.clear();
    EXPECT_EQ(zero, RunAlone(shape, tokens, {.has_precision = false}));
  }
}

TEST_P(PalimpsaFoldTest, LongestSequenceFollowsTheReference) {
  const PalimpsaShape shape{1, 8, 8};
  constexpr int64_t kCount = 20000;
  const Tokens tokens = RandomTokens(shape, kCount, 7, 1e-3f);
  const Session run = RunAlone(shape, tokens);
  const PalimpsaRefResult want =
      PalimpsaRefRecurrent({shape, 0.125},
                           {ToDouble(tokens.q), ToDouble(tokens.k), ToDouble(tokens.value),
                            ToDouble(tokens.log_decay), ToDouble(tokens.precision)},
                           kCount);
  constexpr double kTolerance = 32 * 0x1p-24;
  EXPECT_LE(MaxAbsDifference(run.out, want.out), kTolerance * MaxAbs(want.out));
  EXPECT_LE(MaxAbsDifference(run.m, want.m), kTolerance * MaxAbs(want.m));
}

// Overflow in M must reach a read, whatever the query, or nobody could report it; and it must stay
// in its row.
TEST_P(PalimpsaFoldTest, OverflowShowsInTheReadsOfItsRow) {
  const PalimpsaShape shape{2, 16, 8};
  for (const int64_t count : {2, 40}) {
    for (const float hostile :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Tokens tokens = RandomTokens(shape, count, 8);
      std::fill(tokens.q.begin(), tokens.q.end(), 0.0f);
      tokens.value[3] = hostile;  // of the first token's first head
      const Session run = RunAlone(shape, tokens);
      for (size_t n = 0; n < run.out.size(); ++n) {
        EXPECT_EQ(std::isfinite(run.out[n]), n % 16 != 3) << n;
      }
    }
  }
}

TEST_P(PalimpsaFoldTest, NoTokensChangeNothing) {
  const PalimpsaShape shape{1, 8, 8};
  EXPECT_TRUE(PalimpsaFold(queue(), shape, {}, 1.0f).ok());
  const std::vector<Session> run = Run(shape, {{}, RandomTokens(shape, 3, 9), {}});
  EXPECT_EQ(run[0].m, std::vector<float>(64));
  EXPECT_EQ(run[2].i_bar, std::vector<float>(64));
}

TEST_P(PalimpsaFoldTest, RejectsWhatItCannotDo) {
  DeviceArray<float> room = ZerosOnDevice<float>(256 * 256);
  const DeviceArray<int32_t> offsets = OnDevice<int32_t>({0, 1});
  PalimpsaBatch good;
  good.q = good.k = good.value = good.log_decay = good.precision = room.data();
  good.m = good.i_bar = good.out = room.data();
  good.offsets = good.slots = offsets.data();
  good.num_sequences = good.num_tokens = good.max_length = 1;
  const auto code = [&](const PalimpsaShape& shape, const PalimpsaBatch& batch) {
    return PalimpsaFold(queue(), shape, batch, 1.0f).code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  for (const PalimpsaShape& shape :
       {PalimpsaShape{0, 8, 8}, PalimpsaShape{1, 12, 8}, PalimpsaShape{1, 8, 4},
        PalimpsaShape{1, 136, 8}, PalimpsaShape{1, 8, 136}, PalimpsaShape{1, 0, 8}}) {
    EXPECT_EQ(code(shape, good), kInvalid);
  }
  for (const auto& spoil : std::vector<void (*)(PalimpsaBatch*)>{
           [](PalimpsaBatch* b) { b->q = nullptr; }, [](PalimpsaBatch* b) { b->out = nullptr; },
           [](PalimpsaBatch* b) { b->k = nullptr; }, [](PalimpsaBatch* b) { b->m = nullptr; },
           [](PalimpsaBatch* b) { b->i_bar = nullptr; },
           [](PalimpsaBatch* b) { b->precision = nullptr; },
           [](PalimpsaBatch* b) { b->slots = nullptr; },
           [](PalimpsaBatch* b) { b->offsets = nullptr; }, [](PalimpsaBatch* b) { b->k += 1; },
           [](PalimpsaBatch* b) { b->num_sequences = -1; },
           [](PalimpsaBatch* b) { b->max_length = 0; }}) {
    PalimpsaBatch bad = good;
    spoil(&bad);
    EXPECT_EQ(code({1, 8, 8}, bad), kInvalid);
  }
}

// What benchmarks may choose, and what the batch chooses, are speeds.
TEST_P(PalimpsaFoldTest, BitsDoNotDependOnTheRowsOfAThread) {
  if (queue()->kind() == DeviceKind::kCpu)
    GTEST_SKIP() << "skipped because the CPU has no such choice";
  for (const PalimpsaShape& shape : {PalimpsaShape{2, 64, 64}, PalimpsaShape{2, 128, 72}}) {
    for (const int64_t count : {7, 77}) {
      const Tokens tokens = RandomTokens(shape, count, 10);
      const Session want = RunAlone(shape, tokens);
      for (const int rows : {1, 2, 4}) {
        const PalimpsaTuning tuning{.prefill_rows = rows};
        EXPECT_EQ(RunAlone(shape, tokens, {.tuning = tuning}), want) << rows;
      }
    }
  }
}

}  // namespace
}  // namespace lethe
