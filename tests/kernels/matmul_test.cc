// Goal: Matmul is one sequential fma chain per output, whatever the number of rows, their split
// into calls, the alignment, the storage of the weights and the width of the vectors.
// Method: std::fma chains as bit oracle, MatmulRef (double) as accuracy oracle.
#include "kernels/matmul/matmul.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "kernels/matmul/panel.h"
#include "kernels/matmul/unpack.h"

namespace lethe {
namespace {

std::vector<float> RandomValues(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

void RoundToBf16(std::vector<float>* values) {
  for (float& value : *values) {
    value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffff0000u);
  }
}

std::vector<uint32_t> Bits(absl::Span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

std::vector<float> ByChains(const std::vector<float>& x, int64_t num_rows,
                            const std::vector<float>& w, int64_t num_outputs, int64_t num_inputs) {
  std::vector<float> y;
  for (int64_t m = 0; m < num_rows; ++m) {
    for (int64_t n = 0; n < num_outputs; ++n) {
      float sum = 0.0f;
      for (int64_t k = 0; k < num_inputs; ++k) {
        sum = std::fma(x[static_cast<size_t>(m * num_inputs + k)],
                       w[static_cast<size_t>(n * num_inputs + k)], sum);
      }
      y.push_back(sum);
    }
  }
  return y;
}

struct Shape {
  int64_t num_outputs;
  int64_t num_inputs;
};

// Edges of panel (16), panels side by side (2 to 8), row tile (6, 12) and block of inputs (256, 512).
constexpr Shape kShapes[] = {{1, 1},   {1, 8},    {8, 16},  {15, 7},   {16, 64},  {17, 3},
                             {40, 24}, {64, 512}, {72, 33}, {24, 513}, {140, 33}, {33, 257}};

class MatmulTest : public testing::TestWithParam<bool> {
 protected:
  std::vector<float> Weights(const Shape& shape) const {
    std::vector<float> w = RandomValues(shape.num_outputs * shape.num_inputs, 1);
    if (GetParam()) RoundToBf16(&w);
    return w;
  }
};

INSTANTIATE_TEST_SUITE_P(Storage, MatmulTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "Bf16" : "F32"; });

TEST_P(MatmulTest, EveryRowCountGivesTheChainsBitsAtEveryWidth) {
  for (const Shape& shape : kShapes) {
    const std::vector<float> w = Weights(shape);
    const PackedMatrix packed = PackedMatrix::Pack(w, shape.num_outputs, shape.num_inputs);
    const std::vector<float> x = RandomValues(70 * shape.num_inputs, 2);
    const std::vector<float> want = ByChains(x, 70, w, shape.num_outputs, shape.num_inputs);
    for (const matmul::Kernel& kernel : matmul::SupportedKernels()) {
      const auto multiply = GetParam() ? kernel.multiply_bf16 : kernel.multiply_f32;
      for (int64_t num_rows = 1; num_rows <= 70; ++num_rows) {
        std::vector<float> y(static_cast<size_t>(num_rows * shape.num_outputs));
        multiply(
            {x.data(), num_rows, packed.data(), shape.num_outputs, shape.num_inputs, y.data()});
        ASSERT_EQ(Bits(y), Bits(absl::MakeConstSpan(want).subspan(0, y.size())))
            << shape.num_outputs << "x" << shape.num_inputs << ", rows " << num_rows << ", lanes "
            << kernel.lanes;
      }
    }
  }
}

TEST(MatmulKernelsTest, AreTheWidthsOfThisProcessorNarrowestFirst) {
  const absl::Span<const matmul::Kernel> kernels = matmul::SupportedKernels();
  ASSERT_FALSE(kernels.empty());
  for (size_t i = 1; i < kernels.size(); ++i) {
    EXPECT_LT(kernels[i - 1].lanes, kernels[i].lanes);
  }
  const bool has_512_bits = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
  EXPECT_EQ(kernels.back().lanes, has_512_bits ? 16 : 8);
}

TEST_P(MatmulTest, EverySplitIntoTwoCallsGivesTheSameBits) {
  const Shape shape = {72, 33};
  const PackedMatrix packed =
      PackedMatrix::Pack(Weights(shape), shape.num_outputs, shape.num_inputs);
  const std::vector<float> x = RandomValues(70 * shape.num_inputs, 3);
  std::vector<float> whole(static_cast<size_t>(70 * shape.num_outputs));
  Matmul(x, 70, packed, absl::MakeSpan(whole));
  for (int64_t cut = 0; cut <= 70; ++cut) {
    std::vector<float> y(whole.size());
    const auto cut_x = static_cast<size_t>(cut * shape.num_inputs);
    const auto cut_y = static_cast<size_t>(cut * shape.num_outputs);
    Matmul(absl::MakeConstSpan(x).subspan(0, cut_x), cut, packed,
           absl::MakeSpan(y).subspan(0, cut_y));
    Matmul(absl::MakeConstSpan(x).subspan(cut_x), 70 - cut, packed,
           absl::MakeSpan(y).subspan(cut_y));
    ASSERT_EQ(Bits(y), Bits(whole)) << cut;
  }
}

TEST_P(MatmulTest, AlignmentOfInputsAndOutputsDoesNotMatter) {
  const Shape shape = {40, 24};
  const PackedMatrix packed =
      PackedMatrix::Pack(Weights(shape), shape.num_outputs, shape.num_inputs);
  const std::vector<float> x = RandomValues(7 * shape.num_inputs, 4);
  std::vector<float> want(static_cast<size_t>(7 * shape.num_outputs));
  Matmul(x, 7, packed, absl::MakeSpan(want));
  for (size_t offset = 0; offset < 16; ++offset) {
    std::vector<float> moved_x(offset, 9.0f);
    moved_x.insert(moved_x.end(), x.begin(), x.end());
    std::vector<float> y(want.size() + offset + 1, 9.0f);
    Matmul(absl::MakeConstSpan(moved_x).subspan(offset), 7, packed,
           absl::MakeSpan(y).subspan(offset, want.size()));
    EXPECT_EQ(Bits(absl::MakeConstSpan(y).subspan(offset, want.size())), Bits(want));
    for (size_t i = 0; i < offset; ++i) EXPECT_EQ(y[i], 9.0f);
    EXPECT_EQ(y.back(), 9.0f);
  }
}

TEST_P(MatmulTest, EqualsTheDoubleReference) {
  for (const Shape& shape : kShapes) {
    const std::vector<float> w = Weights(shape);
    const std::vector<float> x = RandomValues(9 * shape.num_inputs, 5);
    std::vector<float> y(static_cast<size_t>(9 * shape.num_outputs));
    std::vector<double> want(y.size());
    Matmul(x, 9, PackedMatrix::Pack(w, shape.num_outputs, shape.num_inputs), absl::MakeSpan(y));
    MatmulRef(x, 9, w, shape.num_outputs, shape.num_inputs, absl::MakeSpan(want));
    // A chain of k roundings of partial sums of size about sqrt(k).
    const double k = static_cast<double>(shape.num_inputs);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], want[i], 0x1p-23 * 4.0 * k + 1e-7);
  }
}

TEST(PackedMatrixTest, StorageIsBf16OnlyWhenEveryWeightIs) {
  std::vector<float> w = RandomValues(20 * 12, 6);
  RoundToBf16(&w);
  const PackedMatrix bf16 = PackedMatrix::Pack(w, 20, 12);
  EXPECT_EQ(bf16.storage(), PackedMatrix::Storage::kBf16);
  EXPECT_EQ(bf16.size_bytes(), 32u * 12 * 2);
  w.back() = std::bit_cast<float>(std::bit_cast<uint32_t>(w.back()) | 1u);
  const PackedMatrix f32 = PackedMatrix::Pack(w, 20, 12);
  EXPECT_EQ(f32.storage(), PackedMatrix::Storage::kF32);
  EXPECT_EQ(f32.size_bytes(), 32u * 12 * 4);
}

TEST(PackedMatrixTest, Bf16StorageGivesTheBitsOfF32Storage) {
  // A 17th output that is no BF16 value makes the same 16 weights rows be kept as f32.
  std::vector<float> w = RandomValues(16 * 40, 7);
  RoundToBf16(&w);
  const PackedMatrix bf16 = PackedMatrix::Pack(w, 16, 40);
  std::vector<float> w_more = w;
  w_more.resize(17 * 40, 0.1f);
  const PackedMatrix f32 = PackedMatrix::Pack(w_more, 17, 40);
  ASSERT_EQ(bf16.storage(), PackedMatrix::Storage::kBf16);
  ASSERT_EQ(f32.storage(), PackedMatrix::Storage::kF32);
  for (const int64_t num_rows : {1, 2, 3, 6, 64}) {
    const std::vector<float> x = RandomValues(num_rows * 40, 8);
    std::vector<float> y(static_cast<size_t>(num_rows * 16));
    std::vector<float> y_more(static_cast<size_t>(num_rows * 17));
    Matmul(x, num_rows, bf16, absl::MakeSpan(y));
    Matmul(x, num_rows, f32, absl::MakeSpan(y_more));
    for (size_t m = 0; m < static_cast<size_t>(num_rows); ++m) {
      EXPECT_EQ(Bits(absl::MakeConstSpan(y).subspan(m * 16, 16)),
                Bits(absl::MakeConstSpan(y_more).subspan(m * 17, 16)));
    }
  }
}

TEST(PackedMatrixTest, UnpackGivesBackEveryBit) {
  for (const bool is_bf16 : {false, true}) {
    for (const int64_t num_outputs : {1, 9, 16, 37}) {
      std::vector<float> w = RandomValues(num_outputs * 12, 12);
      if (is_bf16) {
        for (float& value : w) {
          value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffff0000u);
        }
      }
      const PackedMatrix packed = PackedMatrix::Pack(w, num_outputs, 12);
      ASSERT_EQ(packed.storage() == PackedMatrix::Storage::kBf16, is_bf16);
      const std::vector<float> unpacked = Unpack(packed);
      ASSERT_EQ(unpacked.size(), w.size());
      EXPECT_EQ(std::memcmp(unpacked.data(), w.data(), w.size() * sizeof(float)), 0);
    }
  }
}

TEST(PackedMatrixTest, NanStaysInItsRow) {
  const PackedMatrix packed = PackedMatrix::Pack(RandomValues(16 * 8, 9), 16, 8);
  std::vector<float> x = RandomValues(8 * 8, 10);
  x[3 * 8 + 2] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> y(8 * 16);
  Matmul(x, 8, packed, absl::MakeSpan(y));
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 16 == 3);
}

TEST(PackedMatrixTest, NoRowsIsNoOp) {
  const PackedMatrix packed = PackedMatrix::Pack(RandomValues(8, 11), 1, 8);
  Matmul({}, 0, packed, {});
}

TEST(PackedMatrixDeathTest, WrongSizesAbort) {
  const PackedMatrix packed = PackedMatrix::Pack(RandomValues(8, 12), 1, 8);
  std::vector<float> x(8);
  std::vector<float> y(2);
  EXPECT_DEATH(Matmul(x, 1, packed, absl::MakeSpan(y)), "check failed");
  EXPECT_DEATH(Matmul(x, 1, PackedMatrix(), absl::MakeSpan(y)), "check failed");
  EXPECT_DEATH(PackedMatrix::Pack(x, 2, 8), "check failed");
}

}  // namespace
}  // namespace lethe
