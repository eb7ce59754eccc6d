// Goal: VlaFold follows the double reference on every device, and a session's bits are a function of
// its tokens: not of the cut into calls, the batch, its mates or the slot.
// Method: random tokens in every variant at tuned and odd sizes against VlaRef and, for recursive
// least squares, its closed form; one sequence folded in many cuts, with and without reads, alone and
// among 256 others of other lengths.
#include "kernels/vla/vla_fold.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "gtest/gtest.h"
#include <Eigen/Dense>

#include "kernels/vla/vla_ref.h"
#include "tests/kernels/stream_inputs.h"
#include "tests/testing/device_test.h"

namespace lethe {
namespace {

using testing::MaxAbs;
using testing::MaxAbsDifference;
using testing::RandomSource;

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

// One session's tokens first .. first + count, folded into a slot.
struct Part {
  const Tokens* tokens;
  int64_t first;
  int64_t count;
  int32_t slot;
};

// All numbers of one slot.
struct State {
  std::vector<float> a, s, key_sum;
  bool operator==(const State& other) const {
    return a == other.a && s == other.s && key_sum == other.key_sum;
  }
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

// Head h's share of one row.
std::vector<double> Row(const std::vector<float>& x, int64_t row, int64_t size) {
  if (x.empty()) return {};
  const auto first = x.begin() + row * size;
  return {first, first + size};
}

class VlaFoldTest : public testing::DeviceTest {
 protected:
  // Sets all slots to the state at rank 0.
  void Start(const VlaOptions& options, int64_t num_slots) {
    options_ = options;
    const auto size = [&](int64_t per_head) {
      return static_cast<size_t>(options.num_heads * per_head);
    };
    const bool has_key_sum = options.read_norm == VlaReadNorm::kPaper;
    initial_ = {std::vector<float>(size(options.key_dim * options.key_dim)),
                std::vector<float>(size(options.value_dim * options.key_dim)),
                std::vector<float>(has_key_sum ? size(options.key_dim) : 0)};
    VlaInitialState(options, {absl::MakeSpan(initial_.a), absl::MakeSpan(initial_.s),
                              absl::MakeSpan(initial_.key_sum)});
    const auto repeat = [&](const std::vector<float>& x) {
      std::vector<float> all;
      for (int64_t n = 0; n < num_slots; ++n) all.insert(all.end(), x.begin(), x.end());
      return OnDevice(all);
    };
    a_ = repeat(initial_.a);
    s_ = repeat(initial_.s);
    key_sum_ = repeat(initial_.key_sum);
  }

  // Folds the parts as one batch; the reads, packed, or nothing where has_read is not set.
  std::vector<float> Fold(const std::vector<Part>& parts, bool has_read = true) {
    Tokens packed;
    std::vector<int32_t> offsets = {0};
    std::vector<int32_t> slots;
    std::vector<int64_t> step_counts;
    VlaBatch batch;
    batch.num_sequences = static_cast<int64_t>(parts.size());
    for (const Part& part : parts) {
      const auto append = [&](const std::vector<float>& from, int64_t dim, std::vector<float>* to) {
        if (from.empty()) return;
        const auto first = from.begin() + part.first * options_.num_heads * dim;
        to->insert(to->end(), first, first + part.count * options_.num_heads * dim);
      };
      append(part.tokens->q, options_.key_dim, &packed.q);
      append(part.tokens->k, options_.key_dim, &packed.k);
      append(part.tokens->v, options_.value_dim, &packed.v);
      append(part.tokens->u, options_.key_dim, &packed.u);
      offsets.push_back(offsets.back() + static_cast<int32_t>(part.count));
      slots.push_back(part.slot);
      step_counts.push_back(part.first);
      batch.max_length = std::max(batch.max_length, part.count);
    }
    batch.num_tokens = offsets.back();
    const auto q = OnDevice(packed.q), k = OnDevice(packed.k), v = OnDevice(packed.v),
               u = OnDevice(packed.u);
    const auto device_offsets = OnDevice(offsets), device_slots = OnDevice(slots);
    const auto device_step_counts = OnDevice(step_counts);
    auto out = OnDevice(std::vector<float>(has_read ? packed.v.size() : 0, -777.0f));
    batch.offsets = device_offsets.data();
    batch.slots = device_slots.data();
    batch.step_counts = device_step_counts.data();
    batch.q = has_read ? q.data() : nullptr;
    batch.k = k.data();
    batch.v = v.data();
    batch.write_direction = u.data();
    batch.a = a_.data();
    batch.s = s_.data();
    batch.key_sum = key_sum_.data();
    batch.out = out.data();
    EXPECT_EQ(VlaFold(queue(), options_, batch), absl::OkStatus());
    return OnHost(out);
  }

  // Folds one sequence in calls of the given lengths, repeated in turn; every write_period-th call
  // reads, the others only write.
  std::vector<float> FoldInCuts(const Tokens& tokens, int64_t count,
                                const std::vector<int64_t>& cuts, size_t write_period = 1) {
    std::vector<float> out;
    size_t cut = 0;
    for (int64_t first = 0; first < count; ++cut) {
      const int64_t size = std::min(cuts[cut % cuts.size()], count - first);
      const auto reads = Fold({{&tokens, first, size, 0}}, cut % write_period == write_period - 1);
      out.insert(out.end(), reads.begin(), reads.end());
      first += size;
    }
    return out;
  }

  State Get(int64_t slot) {
    const auto part = [&](const DeviceArray<float>& pool, size_t size) {
      const std::vector<float> all = OnHost(pool);
      const auto first =
          all.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(slot) * size);
      return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(size));
    };
    return {part(a_, initial_.a.size()), part(s_, initial_.s.size()),
            part(key_sum_, initial_.key_sum.size())};
  }

  void ExpectFollowsReference(const VlaOptions& options, int64_t count) {
    Start(options, 2);
    const Tokens tokens = RandomTokens(options, count, 1);
    // In two calls, so that ranks do not start at a multiple of the nudge's period.
    std::vector<float> out = Fold({{&tokens, 0, 13, 1}});
    const std::vector<float> rest = Fold({{&tokens, 13, count - 13, 1}});
    out.insert(out.end(), rest.begin(), rest.end());
    const State state = Get(1);
    // f32 sums of K terms over `count` tokens. Measured worst over these kinds, of the largest element:
    // reads 5.4e-6 on the CPU and 3.7e-6 on CUDA (both RLS), A and S 2e-6 and 1.9e-6.
    constexpr double kTolerance = 1e-5;
    const int64_t key_dim = options.key_dim;
    const int64_t value_dim = options.value_dim;
    for (int64_t h = 0; h < options.num_heads; ++h) {
      VlaRef ref(options);
      for (int64_t t = 0; t < count; ++t) {
        const int64_t row = t * options.num_heads + h;
        ref.Step(Row(tokens.q, row, key_dim), Row(tokens.k, row, key_dim),
                 Row(tokens.v, row, value_dim), Row(tokens.u, row, key_dim));
        ASSERT_LE(MaxAbsDifference(Row(out, row, value_dim), ref.read()),
                  kTolerance * MaxAbs(ref.read()))
            << "token " << t << " dims " << key_dim << " " << value_dim;
      }
      for (const auto& [got, want] :
           {std::make_pair(Row(state.a, h, key_dim * key_dim), ref.a()),
            std::make_pair(Row(state.s, h, value_dim * key_dim), ref.s())}) {
        EXPECT_LE(MaxAbsDifference(got, want), kTolerance * MaxAbs(want));
      }
      if (!state.key_sum.empty()) {
        EXPECT_LE(MaxAbsDifference(Row(state.key_sum, h, key_dim), ref.key_sum()),
                  kTolerance * MaxAbs(ref.key_sum()));
      }
    }
    EXPECT_EQ(Get(0), initial_) << "a slot that is not in the batch";
  }

 private:
  VlaOptions options_;
  State initial_;  // of a slot
  DeviceArray<float> a_, s_, key_sum_;
};

LETHE_ON_EVERY_DEVICE(VlaFoldTest);

TEST_P(VlaFoldTest, FollowsTheReference) {
  for (const VlaOptions& options : AllKinds(2, 16, 24)) ExpectFollowsReference(options, 200);
  for (const VlaOptions& options : AllKinds(1, 64, 64)) ExpectFollowsReference(options, 300);
  const VlaVariant vla = VlaVariant::kVla;
  ExpectFollowsReference({1, 128, 128, vla, true, 0.1, VlaReadNorm::kRms}, 300);
  ExpectFollowsReference({1, 128, 128, VlaVariant::kRls, false, 0.1, VlaReadNorm::kPaper}, 300);
  ExpectFollowsReference({1, 8, 8, vla, true, 1.0, VlaReadNorm::kRms}, 300);
  ExpectFollowsReference({1, 72, 16, VlaVariant::kRls, false, 10.0, VlaReadNorm::kPaper}, 100);
  ExpectFollowsReference({1, 40, 104, vla, true, 0.1, VlaReadNorm::kPaper}, 100);
  ExpectFollowsReference({2, 120, 56, vla, false, 0.1, VlaReadNorm::kRms}, 100);
}

TEST_P(VlaFoldTest, RecursiveLeastSquaresIsItsClosedForm) {
  const VlaOptions options{1, 64, 64, VlaVariant::kRls, false, 0.1, VlaReadNorm::kRms};
  constexpr int64_t kCount = 200;
  Start(options, 1);
  const Tokens tokens = RandomTokens(options, kCount, 7);
  Fold({{&tokens, 0, kCount, 0}}, false);
  Eigen::MatrixXd gram = 0.1 * Eigen::MatrixXd::Identity(64, 64);
  Eigen::MatrixXd cross = Eigen::MatrixXd::Zero(64, 64);
  for (int64_t t = 0; t < kCount; ++t) {
    const std::vector<double> k = Row(tokens.k, t, 64), v = Row(tokens.v, t, 64);
    const Eigen::VectorXd key = Eigen::Map<const Eigen::VectorXd>(k.data(), 64).normalized();
    gram += key * key.transpose();
    cross += Eigen::Map<const Eigen::VectorXd>(v.data(), 64) * key.transpose();
  }
  const Eigen::MatrixXd want = gram.ldlt().solve(cross.transpose()).transpose();
  const State state = Get(0);
  double largest = 0.0;
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < 64; ++j) {
      const double got = state.s[static_cast<size_t>(i * 64 + j)];
      largest = std::max(largest, std::abs(got - want(i, j)));
    }
  }
  EXPECT_LE(largest, 1e-5 * want.cwiseAbs().maxCoeff());
}

TEST_P(VlaFoldTest, BitsDoNotDependOnTheCut) {
  constexpr int64_t kCount = 150;
  std::vector<VlaOptions> kinds = AllKinds(2, 24, 16);
  kinds.push_back({1, 64, 64, VlaVariant::kVla, true, 0.1, VlaReadNorm::kRms});
  kinds.push_back({1, 128, 128, VlaVariant::kRls, true, 0.1, VlaReadNorm::kPaper});
  for (const VlaOptions& options : kinds) {
    const Tokens tokens = RandomTokens(options, kCount, 2);
    Start(options, 1);
    const std::vector<float> whole = FoldInCuts(tokens, kCount, {kCount});
    const State want = Get(0);
    for (const std::vector<int64_t>& cuts :
         std::vector<std::vector<int64_t>>{{1}, {2}, {63}, {64}, {19, 20, 21}, {1, 7, 65, 3}}) {
      Start(options, 1);
      EXPECT_EQ(FoldInCuts(tokens, kCount, cuts), whole);
      EXPECT_EQ(Get(0), want);
      Start(options, 1);
      FoldInCuts(tokens, kCount, cuts, 2);
      EXPECT_EQ(Get(0), want) << "with calls that only write";
    }
  }
}

TEST_P(VlaFoldTest, ASessionDoesNotDependOnItsMates) {
  for (const auto& [key_dim, value_dim] :
       std::vector<std::pair<int64_t, int64_t>>{{24, 16}, {64, 64}}) {
    const VlaOptions options{2,    key_dim, value_dim,          VlaVariant::kVla,
                             true, 0.1,     VlaReadNorm::kPaper};
    constexpr int64_t kCount = 45;
    const Tokens tokens = RandomTokens(options, kCount, 3);
    const Tokens others = RandomTokens(options, kCount, 4);
    Start(options, 1);
    const std::vector<float> prefill = Fold({{&tokens, 0, kCount - 1, 0}});
    const std::vector<float> decode = Fold({{&tokens, kCount - 1, 1, 0}});
    const State want = Get(0);
    const int64_t per_token = options.num_heads * options.value_dim;
    for (int32_t batch_size : {2, 3, 17, 256}) {
      Start(options, batch_size);
      // Lengths 0 .. 43, slots in another order than the sequences (5 divides no batch size).
      std::vector<Part> first, second;
      int64_t before = 0;
      for (int32_t b = 0; b < batch_size; ++b) {
        const int32_t slot = (b * 5 + 1) % batch_size;
        const bool is_ours = b == batch_size / 2;
        first.push_back(
            {is_ours ? &tokens : &others, 0, is_ours ? kCount - 1 : (b * 7) % 44, slot});
        second.push_back({first.back().tokens, first.back().count, 1, slot});
        if (b < batch_size / 2) before += first.back().count;
      }
      const auto ours = [&](const std::vector<float>& out, int64_t index, int64_t count) {
        const auto begin = out.begin() + index * per_token;
        return std::vector<float>(begin, begin + count * per_token);
      };
      EXPECT_EQ(ours(Fold(first), before, kCount - 1), prefill);
      EXPECT_EQ(ours(Fold(second), batch_size / 2, 1), decode);
      EXPECT_EQ(Get(first[static_cast<size_t>(batch_size / 2)].slot), want);
    }
  }
}

TEST_P(VlaFoldTest, AStaysSymmetric) {
  for (int64_t dim : {40, 64, 128}) {
    Start({1, dim, 8, VlaVariant::kVla, true, 0.1, VlaReadNorm::kRms}, 1);
    const Tokens tokens =
        RandomTokens({1, dim, 8, VlaVariant::kVla, true, 0.1, VlaReadNorm::kRms}, 130, 5);
    FoldInCuts(tokens, 130, {64, 1, 1});
    const std::vector<float> a = Get(0).a;
    for (int64_t i = 0; i < dim; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        EXPECT_EQ(a[static_cast<size_t>(i * dim + j)], a[static_cast<size_t>(j * dim + i)]);
      }
    }
  }
}

TEST_P(VlaFoldTest, NothingComesOfNothing) {
  const VlaOptions options{2, 16, 8, VlaVariant::kVla, true, 0.1, VlaReadNorm::kPaper};
  const Tokens tokens = RandomTokens(options, 4, 6);
  Start(options, 3);
  EXPECT_EQ(VlaFold(queue(), options, {}), absl::OkStatus());
  Fold({{&tokens, 0, 4, 0}, {&tokens, 0, 0, 1}});
  Fold({{&tokens, 0, 1, 0}, {&tokens, 0, 0, 1}});
  const State untouched = Get(2);
  EXPECT_EQ(Get(1), untouched);
  EXPECT_FALSE(Get(0) == untouched);
}

TEST_P(VlaFoldTest, InfinityAndNanShowInTheirOwnSession) {
  for (const float bad : {std::nanf(""), INFINITY}) {
    for (int64_t length : {1, 6}) {
      const VlaOptions options{1, 64, 64, VlaVariant::kVla, false, 0.1, VlaReadNorm::kRms};
      const Tokens tokens = RandomTokens(options, 6, 8);
      Tokens bad_tokens = tokens;
      bad_tokens.k[9] = bad;
      Start(options, 2);
      Fold({{&tokens, 0, length, 0}});
      const State want = Get(0);
      Start(options, 2);
      const std::vector<float> out = Fold({{&bad_tokens, 0, length, 1}, {&tokens, 0, length, 0}});
      EXPECT_TRUE(std::isnan(out[0]));
      EXPECT_TRUE(std::isnan(out[static_cast<size_t>(64 * length - 1)]));
      EXPECT_EQ(Get(0), want);
    }
  }
}

TEST_P(VlaFoldTest, RefusesWhatTheDeviceCannotHold) {
  if (GetParam() == DeviceKind::kCpu) GTEST_SKIP() << "skipped because the CPU takes any size";
  for (const auto& [key_dim, value_dim] :
       std::vector<std::pair<int64_t, int64_t>>{{136, 64}, {64, 136}}) {
    VlaOptions options{1, key_dim, value_dim, VlaVariant::kRls, false, 0.1, VlaReadNorm::kRms};
    float nothing = 0.0f;
    const int32_t offsets[] = {0, 1};
    const int32_t slot = 0;
    const int64_t step_count = 0;
    const VlaBatch batch{1,        1,        1,       offsets,  &slot,    &step_count, nullptr,
                         &nothing, &nothing, nullptr, &nothing, &nothing, nullptr,     nullptr};
    EXPECT_EQ(VlaFold(queue(), options, batch).code(), absl::StatusCode::kUnimplemented);
  }
}

}  // namespace
}  // namespace lethe
