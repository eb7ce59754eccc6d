// Goal: WindowAttentionBatch gives every token the bits of WindowAttention, on every device, however the
// sessions are batched and cut into calls, and leaves the same state.
// Method: WindowAttention over each history in one call (itself held to the double reference by
// window_attention_test, and here once more); random packed calls of several sessions.
#include "kernels/window_attention/window_attention_batch.h"

#include <cmath>
#include <limits>
#include <string>

#include "tests/kernels/packed_calls.h"

namespace lethe {
namespace {

using testing::BitsOf;
using testing::CutIntoCalls;
using testing::DevicePacking;
using testing::PackedCall;
using testing::RandomValues;

using Histories = std::vector<std::vector<float>>;

constexpr float kUnused = 1e30f;  // in the pool: what nobody may read

const WindowAttentionShape kShapes[] = {{1, 8, 8, 1},     {2, 16, 8, 2},   {3, 8, 72, 7},
                                        {2, 64, 64, 64},  {1, 64, 64, 33}, {1, 64, 64, 1},
                                        {2, 128, 64, 64}, {1, 8, 8, 150}};

class WindowAttentionBatchTest : public testing::DeviceTest {
 protected:
  void Use(const WindowAttentionShape& shape, const std::vector<int64_t>& lengths) {
    shape_ = shape;
    lengths_ = lengths;
    key_row_ = shape.num_heads * shape.key_dim;
    value_row_ = shape.num_heads * shape.value_dim;
    slopes_.clear();
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      slopes_.push_back(0.03f * static_cast<float>(head + 1));
    }
    q_.clear();
    k_.clear();
    v_.clear();
    slots_.clear();
    for (size_t s = 0; s < lengths.size(); ++s) {
      const auto seed = static_cast<uint32_t>(10 * s);
      q_.push_back(RandomValues(lengths[s] * key_row_, seed + 1, 2.0f));
      k_.push_back(RandomValues(lengths[s] * key_row_, seed + 2, 2.0f));
      v_.push_back(RandomValues(lengths[s] * value_row_, seed + 3, 2.0f));
      slots_.push_back(static_cast<int32_t>((3 * s + 1) % (3 * lengths.size())));
    }
    const auto num_slots = static_cast<int64_t>(3 * lengths.size());
    const int64_t num_places = num_slots * (shape.window - 1);
    pool_keys_ = OnDevice(std::vector<float>(static_cast<size_t>(num_places * key_row_), kUnused));
    pool_values_ =
        OnDevice(std::vector<float>(static_cast<size_t>(num_places * value_row_), kUnused));
  }

  Histories Run(const std::vector<PackedCall>& calls) {
    const DeviceArray<float> slopes = OnDevice(slopes_);
    Histories o(lengths_.size());
    for (const PackedCall& call : calls) {
      const DevicePacking packing(queue(), call, slots_);
      const DeviceArray<float> q = OnDevice(call.Pack(q_, key_row_));
      const DeviceArray<float> k = OnDevice(call.Pack(k_, key_row_));
      const DeviceArray<float> v = OnDevice(call.Pack(v_, value_row_));
      DeviceArray<float> out = OnDevice(
          std::vector<float>(static_cast<size_t>(call.num_tokens() * value_row_), kUnused));
      EXPECT_TRUE(WindowAttentionBatch(queue(), shape_, slopes.data(), q.data(), k.data(), v.data(),
                                       packing.sequences(),
                                       {pool_keys_.data(), pool_values_.data()}, out.data())
                      .ok());
      call.Unpack(OnHost(out), value_row_, &o);
    }
    return o;
  }

  // Sessions of each shape in calls of up to `longest` tokens of each, against WindowAttention.
  void ExpectBitsOfWindowAttention(const std::vector<int64_t>& lengths,
                                   const std::vector<int64_t>& longest_of_calls) {
    for (const WindowAttentionShape& shape : kShapes) {
      for (const int64_t longest : longest_of_calls) {
        SCOPED_TRACE(std::to_string(shape.window) + ", calls of " + std::to_string(longest));
        Use(shape, lengths);
        const Histories o = Run(CutIntoCalls(lengths, longest, static_cast<uint32_t>(longest)));
        const std::vector<float> keys = OnHost(pool_keys_);
        const std::vector<float> values = OnHost(pool_values_);
        for (size_t s = 0; s < lengths.size(); ++s) {
          ASSERT_EQ(BitsOf(o[s]), BitsOf(Alone(s))) << "session " << s;
          ExpectState(s, keys, values);
        }
      }
    }
  }

  std::vector<float> Alone(size_t s) const {
    std::vector<float> o(v_[s].size());
    WindowAttentionState state(shape_);
    WindowAttention(slopes_, q_[s], k_[s], v_[s], lengths_[s], &state, absl::MakeSpan(o));
    return o;
  }

  void ExpectState(size_t s, const std::vector<float>& keys, const std::vector<float>& values) {
    const int64_t num_places = shape_.window - 1;
    for (int64_t place = 0; place < num_places; ++place) {
      const int64_t newest = lengths_[s] - 1;
      // The last rank that is place modulo num_places.
      const int64_t rank = newest - (newest - place % num_places + num_places) % num_places;
      for (int64_t head = 0; head < shape_.num_heads; ++head) {
        const int64_t at = (slots_[s] * shape_.num_heads + head) * num_places + place;
        for (int64_t i = 0; i < shape_.key_dim; ++i) {
          const float want =
              rank < 0 ? kUnused
                       : k_[s][static_cast<size_t>(rank * key_row_ + head * shape_.key_dim + i)];
          ASSERT_EQ(keys[static_cast<size_t>(at * shape_.key_dim + i)], want) << place;
        }
        for (int64_t i = 0; i < shape_.value_dim; ++i) {
          const float want =
              rank < 0
                  ? kUnused
                  : v_[s][static_cast<size_t>(rank * value_row_ + head * shape_.value_dim + i)];
          ASSERT_EQ(values[static_cast<size_t>(at * shape_.value_dim + i)], want) << place;
        }
      }
    }
  }

  WindowAttentionShape shape_;
  std::vector<int64_t> lengths_;
  int64_t key_row_ = 0;
  int64_t value_row_ = 0;
  std::vector<float> slopes_;
  Histories q_;
  Histories k_;
  Histories v_;
  std::vector<int32_t> slots_;
  DeviceArray<float> pool_keys_;
  DeviceArray<float> pool_values_;
};
LETHE_ON_EVERY_DEVICE(WindowAttentionBatchTest);

TEST_P(WindowAttentionBatchTest, AnyBatchAndCutGivesTheBitsOfWindowAttention) {
  ExpectBitsOfWindowAttention({1, 64, 130, 65, 0, 200, 17, 96}, {1, 2, 9, 100, 400});
}

// Few enough for tests/gpu_sanitizers.
TEST_P(WindowAttentionBatchTest, AFewCallsGiveTheBitsOfWindowAttention) {
  ExpectBitsOfWindowAttention({3, 0, 1, 5}, {1});
  ExpectBitsOfWindowAttention({2, 70, 0, 40}, {64});
}

TEST_P(WindowAttentionBatchTest, FollowsTheReference) {
  Use({3, 64, 64, 64}, {300});
  const Histories o = Run(CutIntoCalls(lengths_, 150, 1));
  std::vector<double> want(o[0].size());
  WindowAttentionRef(shape_, slopes_, q_[0], k_[0], v_[0], absl::MakeSpan(want));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(o[0][i], want[i], 5e-5);
}

TEST_P(WindowAttentionBatchTest, BatchOf256HasTheBitsOfOne) {
  Use({2, 64, 64, 64}, std::vector<int64_t>(256, 3));
  const Histories o = Run(CutIntoCalls(lengths_, 1, 2));
  for (size_t s = 0; s < 256; s += 15) EXPECT_EQ(BitsOf(o[s]), BitsOf(Alone(s)));
}

TEST_P(WindowAttentionBatchTest, NanStaysWithinItsSessionAndWindow) {
  Use({1, 64, 64, 8}, {40, 40});
  v_[0][5 * 64 + 3] = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t longest : {1, 100}) {
    const Histories o = Run(CutIntoCalls(lengths_, longest, 3));
    for (size_t i = 0; i < o[0].size(); ++i) {
      EXPECT_EQ(std::isnan(o[0][i]), i % 64 == 3 && i / 64 >= 5 && i / 64 < 13) << i;
      EXPECT_FALSE(std::isnan(o[1][i]));
    }
  }
}

TEST_P(WindowAttentionBatchTest, NoTokensIsNoOp) {
  Use({1, 8, 8, 4}, {});
  EXPECT_TRUE(
      WindowAttentionBatch(queue(), shape_, nullptr, nullptr, nullptr, nullptr, {}, {}, nullptr)
          .ok());
}

}  // namespace
}  // namespace lethe
