// Goal: CausalConv equals the double reference; outputs and state are, bit for bit, a function of
// the tokens alone, however they are cut into calls and whatever the state went through before.
// Method: CausalConvRef; random cuts against one call; a fresh state fed only the last width-1
// tokens.
#include "kernels/causal_conv/causal_conv.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::StatusIs;

std::vector<float> RandomValues(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

std::string StateBytes(const CausalConvState& state) {
  ByteWriter writer;
  state.AppendTo(&writer);
  return writer.Take();
}

void ExpectSameBits(absl::Span<const float> a, absl::Span<const float> b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i])) << i;
  }
}

struct Case {
  int64_t num_channels;
  int64_t width;
  bool has_bias;
};

class CausalConvTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kCount = 40;

  CausalConvTest()
      : c_(GetParam().num_channels),
        width_(GetParam().width),
        w_(RandomValues(c_ * width_, 1)),
        bias_(GetParam().has_bias ? RandomValues(c_, 2) : std::vector<float>()),
        weights_(w_, bias_, width_),
        z_(RandomValues(kCount * c_, 3)) {}

  absl::Span<const float> Tokens(int64_t begin, int64_t end) const {
    return absl::MakeConstSpan(z_).subspan(static_cast<size_t>(begin * c_),
                                           static_cast<size_t>((end - begin) * c_));
  }

  // Appends the outputs of tokens [begin, end) to y.
  void Run(int64_t begin, int64_t end, CausalConvState* state, std::vector<float>* y) const {
    const size_t old_size = y->size();
    y->resize(old_size + static_cast<size_t>((end - begin) * c_));
    CausalConv(weights_, Tokens(begin, end), state, absl::MakeSpan(*y).subspan(old_size));
  }

  int64_t c_;
  int64_t width_;
  std::vector<float> w_;
  std::vector<float> bias_;
  CausalConvWeights weights_;
  std::vector<float> z_;
};

INSTANTIATE_TEST_SUITE_P(Shapes, CausalConvTest,
                         ::testing::Values(Case{8, 4, false}, Case{24, 4, true}, Case{13, 3, true},
                                           Case{8, 1, false}, Case{5, 1, true}, Case{16, 8, false},
                                           Case{1, 2, false}));

TEST_P(CausalConvTest, EqualsTheDoubleReference) {
  CausalConvState state(c_, width_);
  std::vector<float> y;
  Run(0, kCount, &state, &y);
  std::vector<double> want(y.size());
  CausalConvRef(w_, bias_, width_, z_, absl::MakeSpan(want));
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], want[i], 1e-5);
}

TEST_P(CausalConvTest, AnyCutIntoCallsGivesTheSameBits) {
  CausalConvState whole_state(c_, width_);
  std::vector<float> whole;
  Run(0, kCount, &whole_state, &whole);
  std::mt19937 random(4);
  for (int repeat = 0; repeat < 50; ++repeat) {
    CausalConvState state(c_, width_);
    std::vector<float> y;
    for (int64_t begin = 0; begin < kCount;) {
      // From one token per call up to 12; calls of 0 tokens are no-ops.
      const auto drawn = static_cast<int64_t>(random() % 13u);
      const int64_t end = std::min(kCount, begin + (repeat == 0 ? 1 : drawn));
      Run(begin, end, &state, &y);
      begin = end;
    }
    ExpectSameBits(y, whole);
    EXPECT_EQ(StateBytes(state), StateBytes(whole_state));
  }
}

TEST_P(CausalConvTest, StateIsTheLastWidthMinusOneInputs) {
  CausalConvState state(c_, width_);
  std::vector<float> y;
  for (int64_t n = 0; n < kCount; ++n) {
    const int64_t num_rows = std::min(n, width_ - 1);
    EXPECT_EQ(state.num_rows(), num_rows);
    ByteWriter want;
    want.Array(Tokens(n - num_rows, n));
    EXPECT_EQ(StateBytes(state), want.bytes());
    Run(n, n + 1, &state, &y);
  }
}

TEST_P(CausalConvTest, OutputDependsOnTheLastWidthTokensAlone) {
  CausalConvState state(c_, width_);
  std::vector<float> whole;
  Run(0, kCount, &state, &whole);
  CausalConvState late(c_, width_);
  std::vector<float> y;
  Run(kCount - width_, kCount, &late, &y);
  ExpectSameBits(absl::MakeConstSpan(y).subspan(y.size() - static_cast<size_t>(c_)),
                 absl::MakeConstSpan(whole).subspan(whole.size() - static_cast<size_t>(c_)));
}

TEST_P(CausalConvTest, AssignedStateGoesOnAsBefore) {
  CausalConvState state(c_, width_);
  std::vector<float> y;
  Run(0, 5, &state, &y);
  const CausalConvState snapshot = state;
  std::vector<float> first;
  Run(5, 20, &state, &first);
  state = snapshot;
  std::vector<float> second;
  Run(5, 20, &state, &second);
  ExpectSameBits(first, second);
  state.Clear();
  EXPECT_EQ(StateBytes(state), StateBytes(CausalConvState(c_, width_)));
}

TEST_P(CausalConvTest, BytesReadBackToTheSameState) {
  CausalConvState state(c_, width_);
  std::vector<float> y;
  for (const int64_t end : {2, 20}) {
    Run(0, end, &state, &y);
    const std::string bytes = StateBytes(state);
    CausalConvState back(c_, width_);
    ByteReader reader(bytes);
    ASSERT_OK(back.Read(&reader));
    EXPECT_EQ(reader.remaining(), 0u);
    EXPECT_EQ(StateBytes(back), bytes);
    std::vector<float> a;
    std::vector<float> b;
    CausalConvState copy = state;
    Run(20, 30, &copy, &a);
    Run(20, 30, &back, &b);
    ExpectSameBits(a, b);
  }
}

TEST(CausalConvStateTest, WrongBytesAreRefusedAndChangeNothing) {
  CausalConvState state(8, 4);
  state.Append(RandomValues(16, 5));
  const std::string before = StateBytes(state);
  for (const size_t num_values : {1u, 7u, 12u, 32u}) {  // no whole rows, or more than 3
    ByteWriter writer;
    writer.Array(absl::MakeConstSpan(RandomValues(static_cast<int64_t>(num_values), 6)));
    ByteReader reader(writer.bytes());
    EXPECT_THAT(state.Read(&reader), StatusIs(absl::StatusCode::kDataLoss));
  }
  ByteReader truncated(absl::string_view(before).substr(0, before.size() - 1));
  EXPECT_THAT(state.Read(&truncated), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(StateBytes(state), before);
}

TEST(CausalConvDeathTest, WrongShapesAbort) {
  const CausalConvWeights weights(std::vector<float>(32), {}, 4);
  std::vector<float> z(8);
  std::vector<float> y(8);
  CausalConvState other_width(8, 3);
  CausalConvState other_channels(16, 4);
  CausalConvState state(8, 4);
  EXPECT_DEATH(CausalConv(weights, z, &other_width, absl::MakeSpan(y)), "check failed");
  EXPECT_DEATH(CausalConv(weights, z, &other_channels, absl::MakeSpan(y)), "check failed");
  EXPECT_DEATH(CausalConv(weights, std::vector<float>(7), &state, absl::MakeSpan(y)),
               "check failed");
  EXPECT_DEATH(CausalConvWeights(std::vector<float>(32), std::vector<float>(3), 4), "check failed");
}

}  // namespace
}  // namespace lethe
