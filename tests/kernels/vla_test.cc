// Goal: the f32 form of VLA follows the double reference, its bits are a function of the token
// sequence, and a very long session stays finite and well-conditioned.
// Method: random inputs at several shapes, variants and reads; every cut of a sequence into calls,
// with and without reads; plain loops for the state's bits; a million tokens at a small size with
// the nudge.
#include "kernels/vla/vla.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gtest/gtest.h"
#include <Eigen/Core>
#include <Eigen/Eigenvalues>

#include "kernels/math/math.h"
#include "kernels/vla/vla_ref.h"
#include "tests/kernels/stream_inputs.h"

namespace lethe {
namespace {

using testing::MaxAbs;
using testing::MaxAbsDifference;
using testing::RandomSource;
using testing::ToDouble;

struct Tokens {
  std::vector<float> q, k, v, u;
};

Tokens RandomTokens(const VlaOptions& options, int64_t count, uint64_t seed) {
  RandomSource random(seed);
  const int64_t heads = count * options.num_heads;
  Tokens tokens{
      random.EluPlusOnes(heads * options.key_dim), random.EluPlusOnes(heads * options.key_dim),
      random.Normals(heads * options.value_dim),
      random.Rows(heads, options.key_dim, 1.0 / std::sqrt(static_cast<double>(options.key_dim)))};
  if (options.variant == VlaVariant::kRls) tokens.u.clear();
  return tokens;
}

// The state and reads after folding the tokens in calls of the given lengths, repeated in turn;
// every write_period-th call reads, the others only write.
struct Folded {
  explicit Folded(const VlaOptions& options)
      : a(static_cast<size_t>(options.num_heads * options.key_dim * options.key_dim)),
        s(static_cast<size_t>(options.num_heads * options.value_dim * options.key_dim)),
        key_sum(options.read_norm == VlaReadNorm::kPaper
                    ? static_cast<size_t>(options.num_heads * options.key_dim)
                    : 0) {
    VlaInitialState(options, State());
  }

  Folded(const VlaOptions& options, const Tokens& tokens, int64_t count,
         const std::vector<int64_t>& cuts, size_t write_period = 1)
      : Folded(options) {
    out.resize(tokens.v.size());
    size_t cut = 0;
    for (int64_t first = 0; first < count; ++cut) {
      const int64_t size = std::min(cuts[cut % cuts.size()], count - first);
      const auto part = [&](const auto& x) {
        const int64_t per_token = static_cast<int64_t>(x.size()) / count;
        return absl::MakeSpan(x).subspan(static_cast<size_t>(first * per_token),
                                         static_cast<size_t>(size * per_token));
      };
      const int64_t values = options.num_heads * options.value_dim;
      const VlaInputs inputs{part(tokens.q), part(tokens.k), part(tokens.v), part(tokens.u)};
      if (cut % write_period == write_period - 1) {
        VlaRecurrent(options, inputs, size, first, State(),
                     absl::MakeSpan(out).subspan(static_cast<size_t>(first * values),
                                                 static_cast<size_t>(size * values)));
      } else {
        VlaWrite(options, {{}, inputs.k, inputs.v, inputs.write_direction}, size, first, State());
      }
      first += size;
    }
  }

  VlaState State() { return {absl::MakeSpan(a), absl::MakeSpan(s), absl::MakeSpan(key_sum)}; }

  std::vector<float> a, s, key_sum, out;
};

std::vector<VlaOptions> AllKinds(int64_t num_heads, int64_t key_dim, int64_t value_dim) {
  std::vector<VlaOptions> kinds;
  for (VlaVariant variant : {VlaVariant::kVla, VlaVariant::kRls}) {
    for (bool nudge : {false, true}) {
      for (VlaReadNorm read_norm : {VlaReadNorm::kRms, VlaReadNorm::kPaper}) {
        kinds.push_back({num_heads, key_dim, value_dim, variant, nudge, 0.1, read_norm});
      }
    }
  }
  return kinds;
}

// Head h's share of one token.
std::vector<double> Row(const std::vector<float>& x, int64_t row, int64_t size) {
  if (x.empty()) return {};
  const auto first = x.begin() + row * size;
  return {first, first + size};
}

void ExpectFollowsReference(const VlaOptions& options) {
  constexpr int64_t kCount = 200;
  const Tokens tokens = RandomTokens(options, kCount, 1);
  const Folded folded(options, tokens, kCount, {kCount});
  // Measured worst over these kinds and three seeds: 2.4e-6 of the largest read (RLS), 1e-6 of A
  // and S.
  constexpr double kTolerance = 1e-5;
  for (int64_t h = 0; h < options.num_heads; ++h) {
    VlaRef ref(options);
    for (int64_t t = 0; t < kCount; ++t) {
      const int64_t row = t * options.num_heads + h;
      ref.Step(Row(tokens.q, row, options.key_dim), Row(tokens.k, row, options.key_dim),
               Row(tokens.v, row, options.value_dim), Row(tokens.u, row, options.key_dim));
      EXPECT_LE(MaxAbsDifference(Row(folded.out, row, options.value_dim), ref.read()),
                kTolerance * MaxAbs(ref.read()))
          << "token " << t << " dims " << options.key_dim;
    }
    EXPECT_LE(MaxAbsDifference(Row(folded.a, h, options.key_dim * options.key_dim), ref.a()),
              kTolerance * MaxAbs(ref.a()));
    EXPECT_LE(MaxAbsDifference(Row(folded.s, h, options.value_dim * options.key_dim), ref.s()),
              kTolerance * MaxAbs(ref.s()));
  }
}

TEST(VlaRecurrentTest, FollowsTheReference) {
  for (const VlaOptions& options : AllKinds(2, 16, 24)) ExpectFollowsReference(options);
  ExpectFollowsReference({1, 8, 8, VlaVariant::kVla, true, 1.0, VlaReadNorm::kRms});
  ExpectFollowsReference({2, 64, 64, VlaVariant::kVla, false, 0.1, VlaReadNorm::kRms});
  ExpectFollowsReference({1, 72, 16, VlaVariant::kRls, false, 10.0, VlaReadNorm::kPaper});
}

TEST(VlaRecurrentTest, BitsDoNotDependOnTheCut) {
  constexpr int64_t kCount = 150;
  for (const VlaOptions& options : AllKinds(2, 24, 16)) {
    const Tokens tokens = RandomTokens(options, kCount, 2);
    const Folded whole(options, tokens, kCount, {kCount});
    for (const std::vector<int64_t>& cuts : std::vector<std::vector<int64_t>>{
             {1}, {2}, {63}, {64}, {65}, {19, 20, 21}, {1, 7, 64, 3}}) {
      const Folded cut(options, tokens, kCount, cuts);
      EXPECT_EQ(cut.out, whole.out);
      EXPECT_EQ(cut.a, whole.a);
      EXPECT_EQ(cut.s, whole.s);
      EXPECT_EQ(cut.key_sum, whole.key_sum);
    }
  }
}

// The formula of vla.h in its order of summation, for one head.
Folded PlainLoops(const VlaOptions& options, const Tokens& tokens, size_t count) {
  const auto key_dim = static_cast<size_t>(options.key_dim);
  const auto value_dim = static_cast<size_t>(options.value_dim);
  Folded plain(options);
  const auto row = [](const std::vector<float>& x, size_t index, size_t size) {
    return absl::MakeConstSpan(x).subspan(index * size, size);
  };
  const auto times_a = [&](absl::Span<const float> x) {
    std::vector<float> y(key_dim);
    for (size_t i = 0; i < key_dim; ++i) {
      for (size_t j = 0; j < key_dim; ++j) y[j] = std::fma(plain.a[i * key_dim + j], x[i], y[j]);
    }
    return y;
  };
  for (size_t t = 0; t < count; ++t) {
    const auto k = row(tokens.k, t, key_dim);
    std::vector<float> key_unit(key_dim);
    L2Normalize(k, absl::MakeSpan(key_unit));
    const auto u = tokens.u.empty() ? absl::MakeConstSpan(key_unit) : row(tokens.u, t, key_dim);
    std::vector<float> w = times_a(u);
    const float root =
        std::sqrt(std::max(1.0f + Dot(u, w), static_cast<float>(kVlaDenominatorMin)));
    for (float& element : w) element /= root;
    for (size_t i = 0; i < key_dim; ++i) {
      for (size_t j = 0; j < key_dim; ++j) {
        float& a = plain.a[i * key_dim + j];
        a = std::fma(-w[i], w[j], a);
        const bool nudges = options.nudge && i == j && (t + 1) % kVlaNudgePeriod == 0;
        if (nudges) a += static_cast<float>(kVlaNudge);
      }
    }
    std::vector<float> alpha = times_a(key_unit);
    if (!tokens.u.empty()) L2Normalize(alpha, absl::MakeSpan(alpha));
    for (size_t i = 0; i < value_dim; ++i) {
      const float error = tokens.v[t * value_dim + i] - Dot(row(plain.s, i, key_dim), key_unit);
      for (size_t j = 0; j < key_dim; ++j) {
        plain.s[i * key_dim + j] = std::fma(error, alpha[j], plain.s[i * key_dim + j]);
      }
    }
    for (size_t j = 0; j < plain.key_sum.size(); ++j) plain.key_sum[j] += k[j];
  }
  return plain;
}

TEST(VlaWriteTest, StatesHaveTheBitsOfPlainLoops) {
  constexpr int64_t kCount = 150;
  for (const auto& [key_dim, value_dim] :
       std::vector<std::pair<int64_t, int64_t>>{{64, 64}, {8, 8}, {40, 24}, {104, 8}, {32, 72}}) {
    for (const VlaOptions& options : AllKinds(1, key_dim, value_dim)) {
      const Tokens tokens = RandomTokens(options, kCount, 6);
      const Folded plain = PlainLoops(options, tokens, kCount);
      for (const std::vector<int64_t>& cuts :
           std::vector<std::vector<int64_t>>{{150}, {64}, {1}, {65, 3}, {19, 1, 20}}) {
        for (size_t write_period : std::vector<size_t>{1, 2, 200}) {
          const Folded folded(options, tokens, kCount, cuts, write_period);
          EXPECT_EQ(folded.a, plain.a);
          EXPECT_EQ(folded.s, plain.s);
          EXPECT_EQ(folded.key_sum, plain.key_sum);
        }
      }
    }
  }
}

TEST(VlaRecurrentTest, AStaysSymmetricBitForBit) {
  const VlaOptions options{1, 72, 8, VlaVariant::kVla, true, 0.1, VlaReadNorm::kRms};
  const Folded folded(options, RandomTokens(options, 300, 3), 300, {300});
  for (size_t i = 0; i < 72; ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_EQ(folded.a[i * 72 + j], folded.a[j * 72 + i]);
  }
}

// numerics.md 18: where no input comes, A grows by 5e-5 a token and is not bounded, but a million
// tokens are no danger.
TEST(VlaRecurrentTest, AMillionTokensWithTheNudgeStayFinite) {
  VlaOptions options{1, 8, 8, VlaVariant::kVla, true, 0.1, VlaReadNorm::kRms};
  constexpr int64_t kCount = 1000000;
  constexpr int64_t kCall = 1000;
  Folded folded(options);
  Tokens tokens = RandomTokens(options, kCall, 4);
  for (size_t t = 0; t < kCall; ++t)
    tokens.u[t * 8 + 7] = 0.0f;  // A's last direction gets no input
  std::vector<float> out(static_cast<size_t>(kCall) * 8);
  for (int64_t t = 0; t < kCount; t += kCall) {
    VlaRecurrent(options, {tokens.q, tokens.k, tokens.v, tokens.u}, kCall, t, folded.State(),
                 absl::MakeSpan(out));
  }
  EXPECT_TRUE(std::isfinite(MaxAbs(out)));
  for (float element : folded.s) EXPECT_TRUE(std::isfinite(element));
  const std::vector<double> a = ToDouble(folded.a);
  const Eigen::VectorXd spectrum = Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(
                                       Eigen::Map<const Eigen::MatrixXd>(a.data(), 8, 8))
                                       .eigenvalues();
  EXPECT_GT(spectrum(0), 0.0);
  EXPECT_NEAR(spectrum(7), 10.0 + 50.0, 0.5);
  EXPECT_LT(spectrum(7) / spectrum(0), 1e6);
}

TEST(VlaRecurrentTest, RepeatedTokensKeepAPositiveOverALongestHistory) {
  for (VlaVariant variant : {VlaVariant::kVla, VlaVariant::kRls}) {
    VlaOptions options{1, 16, 8, variant, false, 0.1, VlaReadNorm::kRms};
    constexpr int64_t kCall = 1024;
    Tokens tokens = RandomTokens(options, 1, 5);
    for (std::vector<float>* x : {&tokens.q, &tokens.k, &tokens.v, &tokens.u}) {
      const std::vector<float> row = *x;
      for (int64_t t = 1; t < kCall; ++t) x->insert(x->end(), row.begin(), row.end());
    }
    Folded folded(options);
    std::vector<float> out(tokens.v.size());
    for (int64_t t = 0; t < 65536; t += kCall) {
      VlaRecurrent(options, {tokens.q, tokens.k, tokens.v, tokens.u}, kCall, t, folded.State(),
                   absl::MakeSpan(out));
    }
    const std::vector<double> a = ToDouble(folded.a);
    const Eigen::VectorXd spectrum = Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(
                                         Eigen::Map<const Eigen::MatrixXd>(a.data(), 16, 16))
                                         .eigenvalues();
    EXPECT_GT(spectrum(0), -1e-4);
    EXPECT_LT(spectrum(15), 10.001);
    EXPECT_TRUE(std::isfinite(MaxAbs(out)));
  }
}

TEST(VlaRecurrentTest, ZeroVectorsLeaveAZeroReadAndTheStateAlone) {
  const VlaOptions options{1, 8, 8};
  Folded folded(options);
  const std::vector<float> zero(8);
  std::vector<float> out(8, 1.0f);
  VlaRecurrent(options, {zero, zero, zero, zero}, 1, 0, folded.State(), absl::MakeSpan(out));
  EXPECT_EQ(out, zero);
  const Folded fresh(options);
  EXPECT_EQ(folded.a, fresh.a);
  EXPECT_EQ(folded.s, fresh.s);
}

TEST(VlaRecurrentDeathTest, WrongSizesAreCallerBugs) {
  const VlaOptions options{1, 8, 8};
  Folded folded(options);
  const std::vector<float> row(8);
  std::vector<float> out(8);
  EXPECT_DEATH(
      VlaRecurrent(options, {row, row, row, {}}, 1, 0, folded.State(), absl::MakeSpan(out)),
      "check failed");
  EXPECT_DEATH(
      VlaRecurrent(options, {row, row, row, row}, 2, 0, folded.State(), absl::MakeSpan(out)),
      "check failed");
  EXPECT_DEATH(VlaInitialState({1, 16, 8}, folded.State()), "check failed");
}

}  // namespace
}  // namespace lethe
