// Goal: WindowAttention equals the double reference; outputs and state are, bit for bit, a function
// of the last `window` tokens alone, however they are cut into calls.
// Method: WindowAttentionRef; random cuts against one call; a fresh state fed only the window; the
// mutant kWindowSummedFromBlockStart must be seen by the same comparison.
#include "kernels/window_attention/window_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/fault_switch.h"
#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::ScopedFault;
using ::lethe::testing::StatusIs;

std::vector<float> RandomValues(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random) * 2.0f;
  return values;
}

std::string StateBytes(const WindowAttentionState& state) {
  ByteWriter writer;
  state.AppendTo(&writer);
  return writer.Take();
}

bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

class WindowAttentionTest : public ::testing::TestWithParam<WindowAttentionShape> {
 protected:
  static constexpr int64_t kCount = 80;

  WindowAttentionTest()
      : shape_(GetParam()),
        key_row_(shape_.num_heads * shape_.key_dim),
        value_row_(shape_.num_heads * shape_.value_dim),
        q_(RandomValues(kCount * key_row_, 1)),
        k_(RandomValues(kCount * key_row_, 2)),
        v_(RandomValues(kCount * value_row_, 3)) {
    for (int64_t head = 0; head < shape_.num_heads; ++head) {
      slopes_.push_back(0.05f * static_cast<float>(head));
    }
  }

  static absl::Span<const float> Rows(const std::vector<float>& values, int64_t begin, int64_t end,
                                      int64_t row) {
    return absl::MakeConstSpan(values).subspan(static_cast<size_t>(begin * row),
                                               static_cast<size_t>((end - begin) * row));
  }

  // Appends the outputs of tokens [begin, end) to o.
  void Run(int64_t begin, int64_t end, WindowAttentionState* state, std::vector<float>* o) const {
    const size_t old_size = o->size();
    o->resize(old_size + static_cast<size_t>((end - begin) * value_row_));
    WindowAttention(slopes_, Rows(q_, begin, end, key_row_), Rows(k_, begin, end, key_row_),
                    Rows(v_, begin, end, value_row_), end - begin, state,
                    absl::MakeSpan(*o).subspan(old_size));
  }

  // All tokens in calls of random size, 0 included.
  std::vector<float> RunInCuts(uint32_t seed, WindowAttentionState* state) const {
    std::mt19937 random(seed);
    std::vector<float> o;
    for (int64_t begin = 0; begin < kCount;) {
      const auto drawn = static_cast<int64_t>(random() % (seed % 40 + 2));
      const int64_t end = std::min(kCount, begin + drawn);
      Run(begin, end, state, &o);
      begin = end;
    }
    return o;
  }

  WindowAttentionShape shape_;
  int64_t key_row_;
  int64_t value_row_;
  std::vector<float> slopes_;
  std::vector<float> q_;
  std::vector<float> k_;
  std::vector<float> v_;
};

INSTANTIATE_TEST_SUITE_P(
    Shapes, WindowAttentionTest,
    ::testing::Values(WindowAttentionShape{1, 8, 8, 1}, WindowAttentionShape{2, 16, 8, 2},
                      WindowAttentionShape{3, 8, 72, 7}, WindowAttentionShape{1, 64, 64, 32},
                      WindowAttentionShape{2, 24, 40, 64}, WindowAttentionShape{1, 8, 8, 1024}),
    [](const auto& test) { return "Window" + std::to_string(test.param.window); });

TEST_P(WindowAttentionTest, EqualsTheDoubleReference) {
  WindowAttentionState state(shape_);
  std::vector<float> o;
  Run(0, kCount, &state, &o);
  std::vector<double> want(o.size());
  WindowAttentionRef(shape_, slopes_, q_, k_, v_, absl::MakeSpan(want));
  for (size_t i = 0; i < o.size(); ++i) EXPECT_NEAR(o[i], want[i], 2e-5);
}

TEST_P(WindowAttentionTest, AnyCutIntoCallsGivesTheSameBits) {
  WindowAttentionState whole_state(shape_);
  std::vector<float> whole;
  Run(0, kCount, &whole_state, &whole);
  for (uint32_t seed = 0; seed < 20; ++seed) {
    WindowAttentionState state(shape_);
    EXPECT_TRUE(SameBits(RunInCuts(seed, &state), whole)) << seed;
    EXPECT_EQ(StateBytes(state), StateBytes(whole_state)) << seed;
  }
}

TEST_P(WindowAttentionTest, OutputDependsOnTheWindowAlone) {
  WindowAttentionState state(shape_);
  std::vector<float> whole;
  Run(0, kCount, &state, &whole);
  const int64_t begin = std::max<int64_t>(0, kCount - shape_.window);
  WindowAttentionState late(shape_);
  std::vector<float> o;
  Run(begin, kCount, &late, &o);
  EXPECT_TRUE(SameBits(absl::MakeConstSpan(o).last(static_cast<size_t>(value_row_)),
                       absl::MakeConstSpan(whole).last(static_cast<size_t>(value_row_))));
}

TEST_P(WindowAttentionTest, StateIsTheLastWindowMinusOneRows) {
  WindowAttentionState state(shape_);
  std::vector<float> o;
  for (int64_t n = 0; n < kCount; ++n) {
    const int64_t num_rows = std::min(n, shape_.window - 1);
    EXPECT_EQ(state.num_rows(), num_rows);
    ByteWriter want;
    want.Array(Rows(k_, n - num_rows, n, key_row_));
    want.Array(Rows(v_, n - num_rows, n, value_row_));
    EXPECT_EQ(StateBytes(state), want.bytes());
    Run(n, n + 1, &state, &o);
  }
}

TEST_P(WindowAttentionTest, BytesReadBackToTheSameState) {
  WindowAttentionState state(shape_);
  std::vector<float> o;
  Run(0, 45, &state, &o);
  const std::string bytes = StateBytes(state);
  WindowAttentionState back(shape_);
  ByteReader reader(bytes);
  ASSERT_OK(back.Read(&reader));
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_EQ(StateBytes(back), bytes);
  std::vector<float> a;
  std::vector<float> b;
  Run(45, kCount, &state, &a);
  Run(45, kCount, &back, &b);
  EXPECT_TRUE(SameBits(a, b));
  state.Clear();
  EXPECT_EQ(StateBytes(state), StateBytes(WindowAttentionState(shape_)));
}

TEST_P(WindowAttentionTest, MutantThatSumsFromTheBlockStartIsSeen) {
  const ScopedFault fault(Fault::kWindowSummedFromBlockStart);
  WindowAttentionState whole_state(shape_);
  std::vector<float> whole;
  Run(0, kCount, &whole_state, &whole);
  int num_different = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    WindowAttentionState state(shape_);
    num_different += SameBits(RunInCuts(seed, &state), whole) ? 0 : 1;
  }
  // With 2 tokens a sum has no order that could go wrong but the place of the largest weight.
  EXPECT_GT(num_different, shape_.window > 2 ? 15 : -1);
}

TEST(WindowAttentionEdgeTest, WindowOneReturnsTheValue) {
  const WindowAttentionShape shape = {1, 8, 8, 1};
  WindowAttentionState state(shape);
  const std::vector<float> q = RandomValues(24, 4);
  const std::vector<float> v = RandomValues(24, 5);
  std::vector<float> o(24);
  WindowAttention({0.5f}, q, q, v, 3, &state, absl::MakeSpan(o));
  EXPECT_TRUE(SameBits(o, v));
  EXPECT_EQ(state.state_bytes(), 0u);
}

TEST(WindowAttentionEdgeTest, FarScoresVanishExactly) {
  // With a steep slope every other weight underflows to 0: the newest value is returned as it is.
  const WindowAttentionShape shape = {1, 8, 8, 16};
  WindowAttentionState state(shape);
  const std::vector<float> q = RandomValues(16 * 8, 6);
  std::vector<float> o(16 * 8);
  WindowAttention({1e6f}, q, q, q, 16, &state, absl::MakeSpan(o));
  EXPECT_TRUE(SameBits(o, q));
}

TEST(WindowAttentionStateTest, WrongBytesAreRefusedAndChangeNothing) {
  const WindowAttentionShape shape = {1, 8, 16, 4};
  WindowAttentionState state(shape);
  state.Append(RandomValues(16, 7), RandomValues(32, 8));
  const std::string before = StateBytes(state);
  const int64_t sizes[][2] = {{8, 32}, {4, 8}, {32, 64}, {0, 16}, {16, 16}};
  for (const auto& size : sizes) {
    ByteWriter writer;
    writer.Array(absl::MakeConstSpan(RandomValues(size[0], 9)));
    writer.Array(absl::MakeConstSpan(RandomValues(size[1], 10)));
    ByteReader reader(writer.bytes());
    EXPECT_THAT(state.Read(&reader), StatusIs(absl::StatusCode::kDataLoss));
  }
  ByteReader truncated(absl::string_view(before).substr(0, before.size() - 1));
  EXPECT_THAT(state.Read(&truncated), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(StateBytes(state), before);
}

TEST(WindowAttentionDeathTest, WrongShapesAbort) {
  WindowAttentionState state(WindowAttentionShape{1, 8, 8, 4});
  std::vector<float> x(8);
  EXPECT_DEATH(WindowAttention({}, x, x, x, 1, &state, absl::MakeSpan(x)), "check failed");
  EXPECT_DEATH(WindowAttention({0.1f}, x, x, x, 2, &state, absl::MakeSpan(x)), "check failed");
  EXPECT_DEATH(WindowAttentionState(WindowAttentionShape{1, 8, 8, 0}), "check failed");
}

}  // namespace
}  // namespace lethe
