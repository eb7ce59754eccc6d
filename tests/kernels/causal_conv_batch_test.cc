// Goal: CausalConvBatch gives every token the bits of CausalConv, on every device, however the sessions are
// batched and cut into calls, and leaves the same state.
// Method: CausalConv over each history in one call (held to the double reference by causal_conv_test);
// random packed calls of several sessions.
#include "kernels/causal_conv/causal_conv_batch.h"

#include <string>

#include "kernels/causal_conv/causal_conv.h"
#include "tests/kernels/packed_calls.h"

namespace lethe {
namespace {

using testing::BitsOf;
using testing::CutIntoCalls;
using testing::DevicePacking;
using testing::PackedCall;
using testing::RandomValues;

constexpr float kUnused = 1e30f;  // in the pool: what nobody may read

struct Shape {
  int64_t num_channels;
  int64_t width;
  bool has_bias;
};
constexpr Shape kShapes[] = {{8, 4, false}, {24, 4, true},  {13, 3, true}, {260, 4, false},
                             {5, 1, true},  {16, 8, false}, {1, 2, false}};

class CausalConvBatchTest : public testing::DeviceTest {
 protected:
  // Sessions of each shape in calls of up to `longest` tokens of each, against CausalConv.
  void ExpectBitsOfCausalConv(const std::vector<int64_t>& lengths,
                              const std::vector<int64_t>& longest_of_calls) {
    for (const Shape& shape : kShapes) {
      const int64_t row = shape.num_channels;
      const std::vector<float> w = RandomValues(row * shape.width, 1);
      const std::vector<float> bias = RandomValues(shape.has_bias ? row : 0, 2);
      std::vector<float> taps;
      for (int64_t j = 0; j < shape.width; ++j) {
        for (int64_t c = 0; c < row; ++c) {
          taps.push_back(w[static_cast<size_t>(c * shape.width + j)]);
        }
      }
      const DeviceArray<float> device_taps = OnDevice(taps);
      const DeviceArray<float> device_bias = OnDevice(bias);
      std::vector<std::vector<float>> z;
      std::vector<int32_t> slots;
      for (size_t s = 0; s < lengths.size(); ++s) {
        z.push_back(RandomValues(lengths[s] * row, static_cast<uint32_t>(10 + s)));
        slots.push_back(static_cast<int32_t>(lengths.size() - s));
      }
      for (const int64_t longest : longest_of_calls) {
        SCOPED_TRACE(std::to_string(row) + ", calls of " + std::to_string(longest));
        const int64_t slot_size = (shape.width - 1) * row;
        DeviceArray<float> pool = OnDevice(
            std::vector<float>((lengths.size() + 1) * static_cast<size_t>(slot_size), kUnused));
        std::vector<std::vector<float>> y(lengths.size());
        for (const PackedCall& call :
             CutIntoCalls(lengths, longest, static_cast<uint32_t>(longest))) {
          const DevicePacking packing(queue(), call, slots);
          const DeviceArray<float> packed_z = OnDevice(call.Pack(z, row));
          DeviceArray<float> packed_y =
              OnDevice(std::vector<float>(static_cast<size_t>(call.num_tokens() * row), kUnused));
          const CausalConvPacked weights = {row, shape.width, device_taps.data(),
                                            shape.has_bias ? device_bias.data() : nullptr};
          ASSERT_TRUE(CausalConvBatch(queue(), weights, packed_z.data(), packing.sequences(),
                                      pool.data(), packed_y.data())
                          .ok());
          call.Unpack(OnHost(packed_y), row, &y);
        }
        const std::vector<float> places = OnHost(pool);
        for (size_t s = 0; s < lengths.size(); ++s) {
          CausalConvState state(row, shape.width);
          std::vector<float> want(z[s].size());
          CausalConv(CausalConvWeights(w, bias, shape.width), z[s], &state, absl::MakeSpan(want));
          ASSERT_EQ(BitsOf(y[s]), BitsOf(want)) << "session " << s;
          for (int64_t distance = 1; distance < shape.width; ++distance) {
            const int64_t rank = lengths[s] - distance;
            const int64_t place = (rank + shape.width - 1) % (shape.width - 1);
            for (int64_t c = 0; c < row; ++c) {
              const float stored =
                  places[static_cast<size_t>(slots[s] * slot_size + place * row + c)];
              ASSERT_EQ(stored, rank < 0 ? kUnused : state.row(distance)[c]) << distance;
            }
          }
        }
      }
    }
  }
};
LETHE_ON_EVERY_DEVICE(CausalConvBatchTest);

TEST_P(CausalConvBatchTest, AnyBatchAndCutGivesTheBitsOfCausalConv) {
  ExpectBitsOfCausalConv({1, 2, 40, 17, 0, 100, 3, 64}, {1, 2, 16, 17, 120});
}

// Few enough for tests/gpu_sanitizers.
TEST_P(CausalConvBatchTest, AFewCallsGiveTheBitsOfCausalConv) {
  ExpectBitsOfCausalConv({3, 0, 1, 40}, {1, 40});
}

TEST_P(CausalConvBatchTest, NoTokensIsNoOp) {
  EXPECT_TRUE(
      CausalConvBatch(queue(), {4, 4, nullptr, nullptr}, nullptr, {}, nullptr, nullptr).ok());
}

}  // namespace
}  // namespace lethe
