// Goal: MatmulBatch follows the double reference within its stated error, and a row's bits depend on the
// row and the weights alone.
// Method: MatmulRef; the same rows in batches of 1 … 300 and at other places; on CUDA every plan by name.
#include "kernels/matmul/matmul_batch.h"

#include <cmath>
#include <limits>

#include "kernels/matmul/matmul_cuda.h"
#include "tests/kernels/packed_calls.h"

namespace lethe {
namespace {

using testing::BitsOf;
using testing::RandomValues;
using testing::RowsOf;

struct Shape {
  int64_t num_outputs;
  int64_t num_inputs;
};
// Edges of tile (16, 64, 128 outputs), step (16 inputs), stage (32) and slice (64, a round 1024).
constexpr Shape kShapes[] = {{1, 1},    {15, 7},   {16, 16},   {17, 33},   {64, 128},
                             {130, 96}, {40, 257}, {129, 132}, {72, 1160}, {200, 512}};

std::vector<float> Weights(const Shape& shape, bool is_bf16, uint32_t seed) {
  std::vector<float> w = RandomValues(shape.num_outputs * shape.num_inputs, seed);
  if (!is_bf16) return w;
  for (float& value : w) {
    value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffff0000u);
  }
  return w;
}

class MatmulBatchTest : public testing::DeviceTest {
 protected:
  std::vector<float> Multiply(const std::vector<float>& x, const DeviceMatrix& w,
                              ActivationTerms terms) {
    const int64_t num_rows = static_cast<int64_t>(x.size()) / w.num_inputs();
    const DeviceArray<float> device_x = OnDevice(x);
    DeviceArray<float> y = OnDevice(std::vector<float>(
        static_cast<size_t>(num_rows * w.num_outputs()), std::numeric_limits<float>::quiet_NaN()));
    EXPECT_TRUE(MatmulBatch(queue(), device_x.data(), num_rows, w, terms, y.data()).ok());
    return OnHost(y);
  }
  DeviceMatrix Matrix(const std::vector<float>& w, const Shape& shape) {
    return *DeviceMatrix::Create(queue(), w, shape.num_outputs, shape.num_inputs);
  }
};
LETHE_ON_EVERY_DEVICE(MatmulBatchTest);

// Of |x w| summed. Dropped bits of an activation; with three terms the truncation of the tensor cores'
// sums, about one unit of the last place of a slice's sum in each of its products.
double Tolerance(ActivationTerms terms) {
  if (terms == ActivationTerms::kOne) return 0x1p-8;
  return terms == ActivationTerms::kTwo ? 0x1p-17 : 0x1p-19;
}

TEST_P(MatmulBatchTest, FollowsTheReference) {
  for (const bool is_bf16 : {true, false}) {
    for (const Shape& shape : kShapes) {
      const std::vector<float> w = Weights(shape, is_bf16, 1);
      const DeviceMatrix matrix = Matrix(w, shape);
      EXPECT_EQ(matrix.storage() == PackedMatrix::Storage::kBf16, is_bf16);
      for (const int64_t num_rows : {1, 5, 16, 70, 150}) {
        const std::vector<float> x = RandomValues(num_rows * shape.num_inputs, 2);
        std::vector<double> want(static_cast<size_t>(num_rows * shape.num_outputs));
        MatmulRef(x, num_rows, w, shape.num_outputs, shape.num_inputs, absl::MakeSpan(want));
        std::vector<float> size_x;
        std::vector<float> size_w;
        for (const float value : x) size_x.push_back(std::abs(value));
        for (const float value : w) size_w.push_back(std::abs(value));
        std::vector<double> size(want.size());
        MatmulRef(size_x, num_rows, size_w, shape.num_outputs, shape.num_inputs,
                  absl::MakeSpan(size));
        for (const ActivationTerms terms :
             {ActivationTerms::kOne, ActivationTerms::kTwo, ActivationTerms::kThree}) {
          const double tolerance = Tolerance(is_bf16 ? terms : ActivationTerms::kThree);
          const std::vector<float> y = Multiply(x, matrix, terms);
          double worst = 0.0;  // NaN stays
          for (size_t i = 0; i < y.size(); ++i) {
            worst = std::max(std::abs(y[i] - want[i]) / size[i], worst);
            ASSERT_FALSE(std::isnan(y[i])) << i;
          }
          EXPECT_LE(worst, tolerance) << shape.num_outputs << "x" << shape.num_inputs << ", rows "
                                      << num_rows << ", terms " << static_cast<int>(terms);
        }
      }
    }
  }
}

TEST_P(MatmulBatchTest, RowsHaveTheSameBitsInEveryBatch) {
  constexpr int64_t kRows = 300;
  for (const bool is_bf16 : {true, false}) {
    for (const Shape& shape : {Shape{72, 300}, Shape{129, 132}, Shape{40, 57}}) {
      const DeviceMatrix matrix = Matrix(Weights(shape, is_bf16, 3), shape);
      const std::vector<float> x = RandomValues(kRows * shape.num_inputs, 4);
      const auto terms = ActivationTerms::kTwo;
      const std::vector<float> whole = Multiply(x, matrix, terms);
      for (const int64_t num_rows : {1, 2, 7, 8, 9, 15, 16, 17, 33, 64, 100, 129, 255, 256}) {
        for (const int64_t first : {int64_t{0}, int64_t{3}, kRows - num_rows}) {
          const std::vector<float> y =
              Multiply(RowsOf(x, first, first + num_rows, shape.num_inputs), matrix, terms);
          ASSERT_EQ(BitsOf(y), BitsOf(RowsOf(whole, first, first + num_rows, shape.num_outputs)))
              << "rows " << num_rows << " from " << first;
        }
      }
    }
  }
}

TEST_P(MatmulBatchTest, NanAndInfinityStayInTheirRows) {
  const Shape shape = {24, 40};
  const DeviceMatrix matrix = Matrix(Weights(shape, true, 5), shape);
  for (const int64_t num_rows : {4, 40}) {
    std::vector<float> x = RandomValues(num_rows * shape.num_inputs, 6);
    x[1 * 40 + 7] = std::numeric_limits<float>::quiet_NaN();
    x[3 * 40 + 39] = -std::numeric_limits<float>::infinity();
    const std::vector<float> y = Multiply(x, matrix, ActivationTerms::kTwo);
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(std::isfinite(y[i]), i / 24 != 1 && i / 24 != 3) << i;
    }
  }
}

TEST_P(MatmulBatchTest, NoRowsIsNoOp) {
  const DeviceMatrix matrix = Matrix(Weights({3, 5}, false, 7), {3, 5});
  EXPECT_TRUE(Multiply({}, matrix, ActivationTerms::kTwo).empty());
}

#ifdef LETHE_CUDA
// Whatever the launcher chooses for a size, it chooses among these.
TEST_P(MatmulBatchTest, EveryPlanGivesTheSameBits) {
  if (queue()->kind() != DeviceKind::kCuda) GTEST_SKIP() << "skipped because the host has one plan";
  using matmul::MatmulPlan;
  constexpr int64_t kRows = 200;
  for (const bool is_bf16 : {true, false}) {
    for (const Shape& shape : {Shape{200, 1160}, Shape{129, 132}, Shape{40, 57}}) {
      const DeviceMatrix matrix = Matrix(Weights(shape, is_bf16, 8), shape);
      const DeviceArray<float> x = OnDevice(RandomValues(kRows * shape.num_inputs, 9));
      for (const int terms : {1, 2, 3}) {
        if (!is_bf16 && terms != 3) continue;
        std::vector<std::vector<uint32_t>> bits;
        for (const MatmulPlan plan :
             {MatmulPlan::kFewRows8, MatmulPlan::kFewRows16, MatmulPlan::kSmallTiles,
              MatmulPlan::kLargeTiles, MatmulPlan::kWgmma}) {
          DeviceArray<float> y =
              OnDevice(std::vector<float>(static_cast<size_t>(kRows * shape.num_outputs), 9.0f));
          const matmul::CudaProblem problem = {x.data(),
                                               matrix.tiles(),
                                               y.data(),
                                               kRows,
                                               static_cast<int>(shape.num_outputs),
                                               static_cast<int>(shape.num_inputs),
                                               static_cast<int>((shape.num_outputs + 15) / 16),
                                               static_cast<int>((shape.num_inputs + 31) / 32 * 2),
                                               is_bf16,
                                               terms};
          if (plan == MatmulPlan::kWgmma && !matmul::FitsWgmma(*queue(), problem)) continue;
          ASSERT_TRUE(matmul::MatmulCuda(queue(), problem, plan).ok());
          bits.push_back(BitsOf(OnHost(y)));
          ASSERT_EQ(bits.front(), bits.back())
              << static_cast<int>(plan) << ", terms " << terms << ", " << shape.num_inputs;
        }
      }
    }
  }
}
#endif  // LETHE_CUDA

}  // namespace
}  // namespace lethe
