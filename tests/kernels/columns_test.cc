// Goal: splitting, joining, gathering and the maps on the way give on every device the bits of one IEEE
// operation after the other, and a number that is not finite marks its row and no other.
// Method: the definitions of columns.h in plain loops over kernels/math's functions; parts that lie and
// end at multiples of four and parts that do not.
#include "kernels/elementwise/columns.h"

#include <cmath>
#include <limits>

#include "kernels/math/math.h"
#include "tests/kernels/packed_calls.h"

namespace lethe {
namespace {

using elementwise::JoinPart;
using elementwise::Map;
using elementwise::Matrix;
using elementwise::SplitPart;
using testing::BitsOf;
using testing::RandomValues;

class ColumnsTest : public testing::DeviceTest {};
LETHE_ON_EVERY_DEVICE(ColumnsTest);

float Mapped(Map map, float x) {
  switch (map) {
    case Map::kNone:
      return x;
    case Map::kSigmoid:
      return Sigmoid(x);
    case Map::kSilu:
      return Silu(x);
    case Map::kSoftplus:
      return Softplus(x);
    case Map::kEluPlusOne:
      return EluPlusOne(x);
  }
  return x;
}

struct Wanted {
  int64_t begin;
  int64_t num_columns;
  Map map;
  bool adds;
  bool scales;
};

const Wanted kWanted[] = {
    {0, 8, Map::kNone, false, false},        {8, 24, Map::kSilu, false, false},
    {32, 3, Map::kSoftplus, true, true},     {35, 5, Map::kSigmoid, false, true},
    {40, 40, Map::kEluPlusOne, true, false}, {32, 3, Map::kNone, true, false}};
constexpr int64_t kColumns = 80;

TEST_P(ColumnsTest, SplitMapsEveryPart) {
  for (const int64_t num_rows : {1, 3, 300}) {
    SCOPED_TRACE(num_rows);
    const std::vector<float> x = RandomValues(num_rows * kColumns, 1, 4.0f);
    const std::vector<float> row = RandomValues(kColumns, 2);
    const DeviceArray<float> device_x = OnDevice(x);
    const DeviceArray<float> device_row = OnDevice(row);
    std::vector<DeviceArray<float>> y;
    std::vector<SplitPart> parts;
    std::vector<std::vector<float>> want;
    for (const Wanted& wanted : kWanted) {
      y.push_back(ZerosOnDevice<float>(static_cast<size_t>(num_rows * wanted.num_columns)));
      const float* operand = device_row.data();
      parts.push_back({wanted.begin, wanted.num_columns, wanted.map,
                       wanted.adds ? operand : nullptr, wanted.scales ? operand : nullptr,
                       y.back().data()});
      want.emplace_back();
      for (int64_t i = 0; i < num_rows * wanted.num_columns; ++i) {
        const int64_t c = i % wanted.num_columns;
        const float of_row = row[static_cast<size_t>(c)];
        float value = x[static_cast<size_t>(i / wanted.num_columns * kColumns + wanted.begin + c)];
        if (wanted.adds) value += of_row;
        value = Mapped(wanted.map, value);
        if (wanted.scales) value *= of_row;
        want.back().push_back(value);
      }
    }
    const DeviceArray<SplitPart> device_parts = OnDevice(parts);
    ASSERT_TRUE(elementwise::SplitColumns(queue(), device_x.data(), {num_rows, kColumns},
                                          device_parts.data(), std::ssize(parts), 40, nullptr)
                    .ok());
    for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(BitsOf(OnHost(y[i])), BitsOf(want[i])) << i;
  }
}

TEST_P(ColumnsTest, NumbersThatAreNotFiniteMarkTheirRow) {
  std::vector<float> x = RandomValues(5 * 12, 3);
  x[1 * 12 + 2] = std::numeric_limits<float>::infinity();
  x[3 * 12 + 9] = std::numeric_limits<float>::quiet_NaN();
  x[4 * 12 + 11] = -std::numeric_limits<float>::infinity();  // in no part
  const DeviceArray<float> device_x = OnDevice(x);
  DeviceArray<float> a = ZerosOnDevice<float>(5 * 8);
  DeviceArray<float> b = ZerosOnDevice<float>(5 * 3);
  const DeviceArray<SplitPart> parts =
      OnDevice(std::vector<SplitPart>{{0, 8, Map::kNone, nullptr, nullptr, a.data()},
                                      {8, 3, Map::kNone, nullptr, nullptr, b.data()}});
  DeviceArray<uint8_t> is_bad = OnDevice(std::vector<uint8_t>{1, 0, 0, 0, 0});
  ASSERT_TRUE(elementwise::SplitColumns(queue(), device_x.data(), {5, 12}, parts.data(), 2, 8,
                                        is_bad.data())
                  .ok());
  EXPECT_EQ(OnHost(is_bad), (std::vector<uint8_t>{1, 1, 0, 1, 0}));
  std::vector<float> want_a, want_b;
  for (size_t i = 0; i < x.size(); ++i) {
    const float value = std::isfinite(x[i]) ? x[i] : 0.0f;
    if (i % 12 < 8) want_a.push_back(value);
    if (i % 12 >= 8 && i % 12 < 11) want_b.push_back(value);
  }
  EXPECT_EQ(BitsOf(OnHost(a)), BitsOf(want_a));
  EXPECT_EQ(BitsOf(OnHost(b)), BitsOf(want_b));
}

TEST_P(ColumnsTest, JoinPutsEveryPartAtItsColumns) {
  for (const int64_t num_rows : {1, 5, 300}) {
    const std::vector<float> a = RandomValues(num_rows * 16, 4);
    const std::vector<float> factor = RandomValues(num_rows * 16, 5);
    const std::vector<float> b = RandomValues(num_rows * 6, 6);
    const std::vector<float> gain = RandomValues(3, 7);
    const DeviceArray<float> device_a = OnDevice(a);
    const DeviceArray<float> device_factor = OnDevice(factor);
    const DeviceArray<float> device_b = OnDevice(b);
    const DeviceArray<float> device_gain = OnDevice(gain);
    const DeviceArray<JoinPart> parts =
        OnDevice(std::vector<JoinPart>{{0, 16, device_a.data(), device_factor.data(), nullptr, 1},
                                       {16, 6, device_b.data(), nullptr, device_gain.data(), 3},
                                       {22, 16, device_a.data(), nullptr, nullptr, 1}});
    DeviceArray<float> y = ZerosOnDevice<float>(static_cast<size_t>(num_rows * 40));
    ASSERT_TRUE(
        elementwise::JoinColumns(queue(), parts.data(), 3, 16, {num_rows, 40}, y.data()).ok());
    std::vector<float> want;
    for (size_t row = 0; row < static_cast<size_t>(num_rows); ++row) {
      for (size_t c = 0; c < 16; ++c) want.push_back(a[row * 16 + c] * factor[row * 16 + c]);
      for (size_t c = 0; c < 6; ++c) want.push_back(b[row * 6 + c] * gain[c % 3]);
      for (size_t c = 0; c < 16; ++c) want.push_back(a[row * 16 + c]);
      want.insert(want.end(), 2, 0.0f);
    }
    EXPECT_EQ(BitsOf(OnHost(y)), BitsOf(want));
  }
}

TEST_P(ColumnsTest, SwigluHeadsAndRows) {
  const int64_t num_rows = 9;
  const std::vector<float> x = RandomValues(num_rows * 24, 8, 3.0f);
  const std::vector<float> gate = RandomValues(num_rows * 3, 9);
  const std::vector<float> gain = RandomValues(3, 10);
  std::vector<float> swiglu, plain, gained, gathered;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t row = i / 24;
    const size_t c = i % 24;
    if (c < 12) swiglu.push_back(Silu(x[i]) * x[i + 12]);
    const float of_head = gate[row * 3 + c / 8];
    plain.push_back(of_head * x[i]);
    gained.push_back(of_head * gain[c / 8] * Sigmoid(x[i]));
  }
  const DeviceArray<float> device_x = OnDevice(x);
  const DeviceArray<float> device_gate = OnDevice(gate);
  const DeviceArray<float> device_gain = OnDevice(gain);
  DeviceArray<float> half = ZerosOnDevice<float>(x.size() / 2);
  ASSERT_TRUE(
      elementwise::SwigluColumns(queue(), device_x.data(), {num_rows, 12}, half.data()).ok());
  EXPECT_EQ(BitsOf(OnHost(half)), BitsOf(swiglu));
  DeviceArray<float> y = ZerosOnDevice<float>(x.size());
  ASSERT_TRUE(elementwise::ScaleHeads(queue(), device_gate.data(), nullptr, Map::kNone,
                                      device_x.data(), {num_rows, 24}, 3, y.data())
                  .ok());
  EXPECT_EQ(BitsOf(OnHost(y)), BitsOf(plain));
  y = OnDevice(x);
  ASSERT_TRUE(elementwise::ScaleHeads(queue(), device_gate.data(), device_gain.data(),
                                      Map::kSigmoid, y.data(), {num_rows, 24}, 3, y.data())
                  .ok());
  EXPECT_EQ(BitsOf(OnHost(y)), BitsOf(gained));
  const std::vector<int32_t> rows = {8, 0, 3, 3};
  for (const int32_t row : rows) {
    gathered.insert(gathered.end(), x.begin() + row * 24, x.begin() + (row + 1) * 24);
  }
  const DeviceArray<int32_t> device_rows = OnDevice(rows);
  y = ZerosOnDevice<float>(gathered.size());
  ASSERT_TRUE(
      elementwise::GatherRows(queue(), device_x.data(), device_rows.data(), {4, 24}, y.data())
          .ok());
  EXPECT_EQ(BitsOf(OnHost(y)), BitsOf(gathered));
}

TEST_P(ColumnsTest, HeadsOfEveryPartAreNormalized) {
  for (const int64_t num_rows : {1, 3, 300}) {
    SCOPED_TRACE(num_rows);
    std::vector<std::vector<float>> want = {RandomValues(num_rows * 24, 11),
                                            RandomValues(num_rows * 128, 12)};
    std::vector<DeviceArray<float>> x;
    std::vector<elementwise::HeadsPart> parts;
    for (std::vector<float>& values : want) {
      const int64_t columns = std::ssize(values) / num_rows;
      const int64_t head_columns = columns == 24 ? 8 : 64;
      x.push_back(OnDevice(values));
      parts.push_back({x.back().data(), columns, head_columns});
      for (int64_t i = 0; i < std::ssize(values); i += head_columns) {
        const auto head = absl::MakeSpan(values).subspan(static_cast<size_t>(i),
                                                         static_cast<size_t>(head_columns));
        L2Normalize(head, head);
      }
    }
    const DeviceArray<elementwise::HeadsPart> device_parts = OnDevice(parts);
    ASSERT_TRUE(elementwise::NormalizeHeads(queue(), device_parts.data(), 2, 128, num_rows).ok());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(BitsOf(OnHost(x[i])), BitsOf(want[i])) << i;
  }
}

}  // namespace
}  // namespace lethe
