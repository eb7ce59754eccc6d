// Goal: the f32 form of Palimpsa follows the double reference, and its bits are a function of the
// token sequence.
// Method: random inputs at several shapes; every cut of a sequence into calls, with and without
// reads; plain loops for the state's bits; tiny precisions; hostile values.
#include "kernels/palimpsa/palimpsa.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

#include "kernels/math/math.h"
#include "kernels/palimpsa/palimpsa_ref.h"
#include "tests/kernels/stream_inputs.h"

namespace lethe {
namespace {

using testing::MaxAbs;
using testing::MaxAbsDifference;
using testing::RandomSource;
using testing::ToDouble;

struct Tokens {
  std::vector<float> q, k, value, log_decay, precision;
};

Tokens RandomTokens(const PalimpsaShape& shape, int64_t count, uint64_t seed,
                    float precision_max = 1.0f) {
  RandomSource random(seed);
  const int64_t heads = count * shape.num_heads;
  return {random.Rows(heads, shape.key_dim, 1.0), random.Rows(heads, shape.key_dim, 1.0),
          random.Normals(heads * shape.value_dim), random.Uniforms(heads, -0.2f, -0.001f),
          random.Uniforms(heads * shape.value_dim, 0.0f, precision_max)};
}

// The state and reads after folding the tokens in calls of the given lengths, repeated in turn;
// every write_period-th call reads, the others only write.
struct Folded {
  Folded(const PalimpsaShape& shape, const Tokens& tokens, int64_t count,
         const std::vector<int64_t>& cuts, bool has_precision = true, size_t write_period = 1)
      : m(static_cast<size_t>(shape.num_heads * shape.value_dim * shape.key_dim)),
        i_bar(has_precision ? m.size() : 0),
        out(tokens.value.size()) {
    size_t cut = 0;
    for (int64_t first = 0; first < count; ++cut) {
      const int64_t size = std::min(cuts[cut % cuts.size()], count - first);
      const auto part = [&](const auto& x, int64_t per_token) {
        return absl::MakeSpan(x).subspan(static_cast<size_t>(first * per_token),
                                         static_cast<size_t>(size * per_token));
      };
      const int64_t keys = shape.num_heads * shape.key_dim;
      const int64_t values = shape.num_heads * shape.value_dim;
      PalimpsaInputs inputs{part(tokens.q, keys),
                            part(tokens.k, keys),
                            part(tokens.value, values),
                            part(tokens.log_decay, shape.num_heads),
                            {}};
      if (has_precision) inputs.precision = part(tokens.precision, values);
      if (cut % write_period == write_period - 1) {
        PalimpsaRecurrent(shape, inputs, size, 0.125f, absl::MakeSpan(m), absl::MakeSpan(i_bar),
                          absl::MakeSpan(out).subspan(static_cast<size_t>(first * values),
                                                      static_cast<size_t>(size * values)));
      } else {
        inputs.q = {};
        PalimpsaWrite(shape, inputs, size, absl::MakeSpan(m), absl::MakeSpan(i_bar));
      }
      first += size;
    }
  }

  std::vector<float> m, i_bar, out;
};

TEST(PalimpsaRecurrentTest, FollowsTheReference) {
  for (const PalimpsaShape& shape :
       {PalimpsaShape{1, 8, 8}, PalimpsaShape{3, 16, 24}, PalimpsaShape{2, 64, 64}}) {
    constexpr int64_t kCount = 300;
    const Tokens tokens = RandomTokens(shape, kCount, 1);
    const Folded run(shape, tokens, kCount, {kCount});
    const PalimpsaRefResult want =
        PalimpsaRefRecurrent({shape, 0.125},
                             {ToDouble(tokens.q), ToDouble(tokens.k), ToDouble(tokens.value),
                              ToDouble(tokens.log_decay), ToDouble(tokens.precision)},
                             kCount);
    // Rounding of M and I compounds over the decay's window, some tens of tokens here.
    constexpr double kTolerance = 32 * 0x1p-24;
    EXPECT_LE(MaxAbsDifference(run.out, want.out), kTolerance * MaxAbs(want.out));
    EXPECT_LE(MaxAbsDifference(run.m, want.m), kTolerance * MaxAbs(want.m));
    EXPECT_LE(MaxAbsDifference(run.i_bar, want.i_bar), kTolerance * MaxAbs(want.i_bar));
    EXPECT_GT(MaxAbs(want.out), 1e-3);
  }
}

TEST(PalimpsaRecurrentTest, BitsDoNotDependOnTheCut) {
  const PalimpsaShape shape{2, 24, 16};
  constexpr int64_t kCount = 200;
  const Tokens tokens = RandomTokens(shape, kCount, 2);
  const Folded whole(shape, tokens, kCount, {kCount});
  for (const std::vector<int64_t>& cuts :
       std::vector<std::vector<int64_t>>{{1}, {2}, {63}, {64}, {65}, {1, 7, 64, 3}, {100, 1}}) {
    const Folded cut(shape, tokens, kCount, cuts);
    EXPECT_EQ(cut.out, whole.out);
    EXPECT_EQ(cut.m, whole.m);
    EXPECT_EQ(cut.i_bar, whole.i_bar);
  }
}

// The formula of palimpsa.h, element by element.
TEST(PalimpsaWriteTest, StatesHaveTheBitsOfPlainLoops) {
  constexpr size_t kCount = 150;
  for (const PalimpsaShape& shape :
       {PalimpsaShape{1, 8, 8}, PalimpsaShape{3, 40, 24}, PalimpsaShape{2, 64, 64},
        PalimpsaShape{1, 104, 5}, PalimpsaShape{2, 32, 72}}) {
    const Tokens tokens = RandomTokens(shape, kCount, 7);
    const auto num_heads = static_cast<size_t>(shape.num_heads);
    const auto key_dim = static_cast<size_t>(shape.key_dim);
    const auto value_dim = static_cast<size_t>(shape.value_dim);
    std::vector<float> m(num_heads * value_dim * key_dim);
    std::vector<float> i_bar(m.size());
    for (size_t index = 0; index < m.size(); ++index) {
      const size_t head = index / (value_dim * key_dim);
      for (size_t t = 0; t < kCount; ++t) {
        const size_t row = t * num_heads + head;
        const float decay = Exp(tokens.log_decay[row]);
        const float k = tokens.k[row * key_dim + index % key_dim];
        const size_t value_index = row * value_dim + index / key_dim % value_dim;
        m[index] = std::fma(tokens.value[value_index], k, decay * m[index]);
        i_bar[index] = std::fma(tokens.precision[value_index], k * k, decay * i_bar[index]);
      }
    }
    for (bool has_precision : {true, false}) {
      for (const std::vector<int64_t>& cuts :
           std::vector<std::vector<int64_t>>{{150}, {64}, {1}, {65, 3}, {7, 64}}) {
        for (size_t write_period : std::vector<size_t>{1, 2, 200}) {
          const Folded folded(shape, tokens, kCount, cuts, has_precision, write_period);
          EXPECT_EQ(folded.m, m);
          EXPECT_EQ(folded.i_bar, has_precision ? i_bar : std::vector<float>());
        }
      }
    }
  }
}

TEST(PalimpsaRecurrentTest, HeadsDoNotInfluenceEachOther) {
  constexpr int64_t kCount = 70;
  const Tokens both = RandomTokens({2, 16, 8}, kCount, 3);
  const auto second = [](const std::vector<float>& x, size_t size) {
    std::vector<float> half;
    for (size_t i = 0; i < x.size(); ++i) {
      if (i / size % 2 == 1) half.push_back(x[i]);
    }
    return half;
  };
  const Tokens alone{second(both.q, 16), second(both.k, 16), second(both.value, 8),
                     second(both.log_decay, 1), second(both.precision, 8)};
  EXPECT_EQ(second(Folded({2, 16, 8}, both, kCount, {kCount}).out, 8),
            Folded({1, 16, 8}, alone, kCount, {kCount}).out);
}

TEST(PalimpsaRecurrentTest, ZeroPrecisionHasTheBitsOfTheFormWithoutMetaplasticity) {
  const PalimpsaShape shape{2, 16, 8};
  constexpr int64_t kCount = 130;
  const Tokens tokens = RandomTokens(shape, kCount, 4, 0.0f);
  const Folded zero(shape, tokens, kCount, {kCount});
  const Folded without(shape, tokens, kCount, {kCount}, /*has_precision=*/false);
  EXPECT_EQ(zero.out, without.out);
  EXPECT_EQ(zero.m, without.m);
  EXPECT_EQ(MaxAbs(zero.i_bar), 0.0);
}

// The reason why the state is (M, I) and not (mu, I_p + I): numerics.md 20 measured 0.63 for the
// latter.
TEST(PalimpsaRecurrentTest, TinyPrecisionsAreNotLost) {
  const PalimpsaShape shape{1, 16, 8};
  constexpr int64_t kCount = 1000;
  const Tokens tokens = RandomTokens(shape, kCount, 5, 1e-7f);
  const Folded run(shape, tokens, kCount, {kCount});
  const PalimpsaRefResult want =
      PalimpsaRefRecurrent({shape, 0.125},
                           {ToDouble(tokens.q), ToDouble(tokens.k), ToDouble(tokens.value),
                            ToDouble(tokens.log_decay), ToDouble(tokens.precision)},
                           kCount);
  for (size_t i = 0; i < run.i_bar.size(); ++i) {
    EXPECT_NEAR(run.i_bar[i] / want.i_bar[i], 1.0, 2e-5);
  }
}

TEST(PalimpsaRecurrentTest, NoTokensChangeNothing) {
  const PalimpsaShape shape{1, 8, 8};
  std::vector<float> m(64, 2.0f);
  std::vector<float> i_bar(64, 3.0f);
  PalimpsaRecurrent(shape, {}, 0, 1.0f, absl::MakeSpan(m), absl::MakeSpan(i_bar), {});
  EXPECT_EQ(m, std::vector<float>(64, 2.0f));
  EXPECT_EQ(i_bar, std::vector<float>(64, 3.0f));
}

// Overflow in M must reach a read, whatever the query, or nobody could report it.
TEST(PalimpsaRecurrentTest, OverflowOfTheWriteShowsInTheRead) {
  const PalimpsaShape shape{1, 8, 8};
  Tokens tokens = RandomTokens(shape, 2, 6);
  std::fill(tokens.q.begin(), tokens.q.end(), 0.0f);
  std::fill(tokens.k.begin(), tokens.k.end(), 4.0f);
  std::fill(tokens.value.begin(), tokens.value.end(), std::numeric_limits<float>::max());
  const Folded run(shape, tokens, 2, {2});
  for (float read : run.out) EXPECT_FALSE(std::isfinite(read));
}

TEST(PalimpsaRecurrentDeathTest, WrongSizesAreCallerBugs) {
  std::vector<float> m(64);
  std::vector<float> out(8);
  const std::vector<float> row(8);
  const std::vector<float> one(1);
  const PalimpsaInputs inputs{row, row, row, one, {}};
  EXPECT_DEATH(
      PalimpsaRecurrent({1, 12, 8}, inputs, 1, 1.0f, absl::MakeSpan(m), {}, absl::MakeSpan(out)),
      "check failed");
  EXPECT_DEATH(
      PalimpsaRecurrent({1, 8, 8}, inputs, 2, 1.0f, absl::MakeSpan(m), {}, absl::MakeSpan(out)),
      "check failed");
  EXPECT_DEATH(PalimpsaRecurrent({1, 8, 8}, inputs, 1, 1.0f, absl::MakeSpan(m), absl::MakeSpan(m),
                                 absl::MakeSpan(out)),
               "check failed");
}

}  // namespace
}  // namespace lethe
