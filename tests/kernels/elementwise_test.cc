// Goal: the element-wise maps, RMSNorm and L2 normalisation have the same bits on every device.
// Method: kernels/math's functions and rms_norm.h, themselves held to references by math_test and
// rms_norm_test; for the maps every range of f32, by random bits and by edges.
#include "kernels/elementwise/elementwise.h"

#include <cmath>
#include <limits>
#include <string>

#include "kernels/math/math.h"
#include "kernels/rms_norm/residual_norm.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rms_norm/rms_norm_batch.h"
#include "tests/kernels/packed_calls.h"

namespace lethe {
namespace {

using elementwise::Function;
using elementwise::Matrix;
using testing::BitsOf;
using testing::RandomValues;

class ElementwiseTest : public testing::DeviceTest {};
LETHE_ON_EVERY_DEVICE(ElementwiseTest);

std::vector<float> EveryKindOfNumber() {
  std::mt19937 random(1);
  std::vector<float> values = {0.0f, -0.0f, 1.0f, -1.0f};
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float edge :
       {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
        std::numeric_limits<float>::denorm_min(), 88.7f, 89.0f, -87.3f, -88.0f, -103.0f, -128.0f}) {
    values.push_back(edge);
    values.push_back(-edge);
  }
  for (int i = 0; i < 200000; ++i) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  for (const float scale : {0.1f, 3.0f, 40.0f}) {
    const std::vector<float> more = RandomValues(20000, 2, scale);
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}

// NaNs are equal: which payload an operation gives is not said.
void ExpectSame(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i])) << i;
  }
}

TEST_P(ElementwiseTest, FunctionsHaveTheBitsOfMath) {
  using ArrayFunction = void (*)(absl::Span<const float>, absl::Span<float>);
  const std::pair<Function, ArrayFunction> kFunctions[] = {{Function::kExp, &Exp},
                                                           {Function::kLog, &Log},
                                                           {Function::kSigmoid, &Sigmoid},
                                                           {Function::kSilu, &Silu},
                                                           {Function::kSoftplus, &Softplus},
                                                           {Function::kElu, &Elu},
                                                           {Function::kEluPlusOne, &EluPlusOne}};
  const std::vector<float> x = EveryKindOfNumber();
  const DeviceArray<float> device_x = OnDevice(x);
  for (const auto& [function, array_function] : kFunctions) {
    SCOPED_TRACE(static_cast<int>(function));
    std::vector<float> want(x.size());
    array_function(x, absl::MakeSpan(want));
    DeviceArray<float> y = ZerosOnDevice<float>(x.size());
    ASSERT_TRUE(elementwise::Apply(queue(), function, device_x.data(),
                                   static_cast<int64_t>(x.size()), y.data())
                    .ok());
    ExpectSame(OnHost(y), want);
  }
}

TEST_P(ElementwiseTest, MapsOfTwoOperandsRoundOnce) {
  for (const int64_t size : {1, 3, 4, 1000, 1027}) {
    const std::vector<float> a = RandomValues(size, 3);
    const std::vector<float> b = RandomValues(size, 4);
    const DeviceArray<float> device_b = OnDevice(b);
    std::vector<float> sum;
    std::vector<float> product;
    std::vector<float> swiglu;
    for (size_t i = 0; i < a.size(); ++i) {
      sum.push_back(a[i] + b[i]);
      product.push_back(a[i] * b[i]);
      swiglu.push_back(Silu(a[i]) * b[i]);
    }
    DeviceArray<float> x = OnDevice(a);
    ASSERT_TRUE(elementwise::Add(queue(), device_b.data(), size, x.data()).ok());
    ExpectSame(OnHost(x), sum);
    x = OnDevice(a);
    ASSERT_TRUE(elementwise::Multiply(queue(), device_b.data(), size, x.data()).ok());
    ExpectSame(OnHost(x), product);
    x = OnDevice(a);
    ASSERT_TRUE(elementwise::Swiglu(queue(), x.data(), device_b.data(), size, x.data()).ok());
    ExpectSame(OnHost(x), swiglu);
  }
}

TEST_P(ElementwiseTest, BroadcastsTakeTheirRowColumnOrHead) {
  const Matrix shape = {7, 24};
  const std::vector<float> x = RandomValues(shape.size(), 5);
  const std::vector<float> row = RandomValues(shape.num_columns, 6);
  const std::vector<float> factor = RandomValues(shape.num_rows, 7);
  const std::vector<float> skip = RandomValues(3, 8);
  const std::vector<float> y = RandomValues(shape.size(), 9);
  std::vector<float> added, columns, rows, skipped;
  for (size_t i = 0; i < x.size(); ++i) {
    added.push_back(x[i] + row[i % 24]);
    columns.push_back(x[i] * row[i % 24]);
    rows.push_back(factor[i / 24] * x[i]);
    skipped.push_back(std::fma(skip[i % 24 / 8], x[i], y[i]));
  }
  const DeviceArray<float> device_row = OnDevice(row);
  const DeviceArray<float> device_factor = OnDevice(factor);
  const DeviceArray<float> device_skip = OnDevice(skip);
  DeviceArray<float> a = OnDevice(x);
  ASSERT_TRUE(elementwise::AddRow(queue(), device_row.data(), shape, a.data()).ok());
  ExpectSame(OnHost(a), added);
  a = OnDevice(x);
  ASSERT_TRUE(elementwise::ScaleColumns(queue(), device_row.data(), shape, a.data()).ok());
  ExpectSame(OnHost(a), columns);
  a = OnDevice(x);
  ASSERT_TRUE(
      elementwise::ScaleRows(queue(), device_factor.data(), a.data(), shape, a.data()).ok());
  ExpectSame(OnHost(a), rows);
  a = OnDevice(x);
  DeviceArray<float> b = OnDevice(y);
  ASSERT_TRUE(elementwise::AddSkip(queue(), device_skip.data(), a.data(), shape, 3, b.data()).ok());
  ExpectSame(OnHost(b), skipped);
}

TEST_P(ElementwiseTest, NormsHaveTheBitsOfTheHostInEveryBatch) {
  // Short rows, rows of a warp, rows too long for shared memory; odd ones.
  for (const int64_t columns : {1, 5, 64, 128, 130, 256, 1001, 1024, 4096, 13000}) {
    for (const int64_t num_rows : {1, 3, 8, 257}) {
      if (columns > 4096 && num_rows > 8) continue;
      SCOPED_TRACE(std::to_string(columns) + " columns, rows " + std::to_string(num_rows));
      const std::vector<float> x = RandomValues(num_rows * columns, 10);
      const std::vector<float> gain = RandomValues(columns, 11);
      std::vector<float> want(x.size());
      RmsNorm(x, gain, 1e-6f, absl::MakeSpan(want));
      const DeviceArray<float> device_gain = OnDevice(gain);
      DeviceArray<float> y = OnDevice(x);
      ASSERT_TRUE(
          RmsNormBatch(queue(), y.data(), num_rows, device_gain.data(), columns, 1e-6f, y.data())
              .ok());
      ExpectSame(OnHost(y), want);
      for (int64_t row = 0; row < num_rows; ++row) {
        const auto begin = static_cast<size_t>(row * columns);
        const auto size = static_cast<size_t>(columns);
        L2Normalize(absl::MakeConstSpan(x).subspan(begin, size),
                    absl::MakeSpan(want).subspan(begin, size));
        for (size_t i = begin; i < begin + size; ++i) want[i] /= 8.0f;
      }
      y = OnDevice(x);
      ASSERT_TRUE(
          elementwise::L2NormalizeRows(queue(), y.data(), {num_rows, columns}, 8.0f, y.data())
              .ok());
      ExpectSame(OnHost(y), want);
    }
  }
}

TEST_P(ElementwiseTest, RowsWithNanOrInfinityAreMarked) {
  const Matrix shape = {5, 9};
  std::vector<float> x = RandomValues(shape.size(), 12);
  x[1 * 9 + 8] = std::numeric_limits<float>::infinity();
  x[4 * 9] = std::numeric_limits<float>::quiet_NaN();
  const DeviceArray<float> device_x = OnDevice(x);
  DeviceArray<uint8_t> is_bad = OnDevice(std::vector<uint8_t>{0, 0, 1, 0, 0});
  ASSERT_TRUE(elementwise::MarkNonFinite(queue(), device_x.data(), shape, is_bad.data()).ok());
  EXPECT_EQ(OnHost(is_bad), (std::vector<uint8_t>{0, 1, 1, 0, 1}));
}

TEST_P(ElementwiseTest, NothingIsNoOp) {
  EXPECT_TRUE(elementwise::Apply(queue(), Function::kExp, nullptr, 0, nullptr).ok());
  EXPECT_TRUE(elementwise::L2NormalizeRows(queue(), nullptr, {0, 8}, 1.0f, nullptr).ok());
  EXPECT_TRUE(RmsNormBatch(queue(), nullptr, 0, nullptr, 8, 1e-6f, nullptr).ok());
}

TEST_P(ElementwiseTest, NormsOfSumsHaveTheBitsOfTheirSteps) {
  for (const int64_t columns : {8, 64, 128, 136, 1024, 1001}) {
    for (const int64_t num_rows : {1, 5, 70}) {
      SCOPED_TRACE(std::to_string(columns) + " columns, rows " + std::to_string(num_rows));
      const std::vector<float> x = RandomValues(num_rows * columns, 12);
      const std::vector<float> y = RandomValues(num_rows * columns, 13);
      const std::vector<float> gain = RandomValues(columns, 14);
      std::vector<float> sum;
      for (size_t i = 0; i < x.size(); ++i) sum.push_back(x[i] + y[i]);
      std::vector<float> want(x.size());
      RmsNorm(sum, gain, 1e-6f, absl::MakeSpan(want));
      const DeviceArray<float> device_y = OnDevice(y);
      const DeviceArray<float> device_gain = OnDevice(gain);
      DeviceArray<float> device_x = OnDevice(x);
      DeviceArray<float> normed = ZerosOnDevice<float>(x.size());
      ASSERT_TRUE(AddNormBatch(queue(), device_y.data(), num_rows, device_gain.data(), columns,
                               1e-6f, device_x.data(), normed.data())
                      .ok());
      EXPECT_EQ(BitsOf(OnHost(device_x)), BitsOf(sum));
      EXPECT_EQ(BitsOf(OnHost(normed)), BitsOf(want));
    }
  }
}

TEST_P(ElementwiseTest, SkipThenGateThenNormByHeadOrByGroup) {
  constexpr int64_t kHeads = 3;
  for (const int64_t head_columns : {8, 64, 128}) {
    for (const bool by_group : {false, true}) {
      for (const bool has_gate : {false, true}) {
        const int64_t columns = kHeads * head_columns;
        const SkipShape shape = {9, kHeads, head_columns, by_group ? columns : head_columns};
        const std::vector<float> x = RandomValues(shape.size(), 15);
        const std::vector<float> y = RandomValues(shape.size(), 16);
        const std::vector<float> gate = RandomValues(shape.size(), 17);
        const std::vector<float> skip = RandomValues(kHeads, 18);
        const std::vector<float> gain = RandomValues(shape.num_channels, 19);
        std::vector<float> want;
        for (size_t i = 0; i < x.size(); ++i) {
          const size_t head = i / static_cast<size_t>(head_columns) % kHeads;
          want.push_back(std::fma(skip[head], x[i], y[i]));
          if (has_gate) want.back() *= gate[i];
        }
        RmsNorm(want, gain, 1e-6f, absl::MakeSpan(want));
        const DeviceArray<float> device_x = OnDevice(x);
        const DeviceArray<float> device_gate = OnDevice(gate);
        const DeviceArray<float> device_skip = OnDevice(skip);
        const DeviceArray<float> device_gain = OnDevice(gain);
        DeviceArray<float> device_y = OnDevice(y);
        ASSERT_TRUE(SkipNormBatch(queue(), shape, device_skip.data(), device_x.data(),
                                  has_gate ? device_gate.data() : nullptr, device_gain.data(),
                                  1e-6f, device_y.data())
                        .ok());
        EXPECT_EQ(BitsOf(OnHost(device_y)), BitsOf(want));
      }
    }
  }
}

}  // namespace
}  // namespace lethe
