// Goal: GramRow is symmetric bit for bit, exact on the diagonal, independent of the call's shape, and
// within GramErrorBound of the exact kernel function.
// Method: random keys at many scales against 50-digit arithmetic; calls cut in every way.
#include "kernels/gram/gram.h"

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "boost/multiprecision/cpp_bin_float.hpp"

namespace lethe {
namespace {

using Wide = boost::multiprecision::cpp_bin_float_50;

std::vector<double> RandomKeys(std::mt19937_64* random, size_t num_keys, size_t dim, double scale) {
  std::normal_distribution<double> normal;
  std::vector<double> keys(num_keys * dim);
  for (double& component : keys) component = scale * normal(*random);
  return keys;
}

absl::Span<const double> Key(const std::vector<double>& keys, size_t dim, size_t i) {
  return absl::MakeConstSpan(keys).subspan(i * dim, dim);
}

Wide ExactKernel(absl::Span<const double> x, absl::Span<const double> y, double sigma) {
  Wide sum = 0;
  for (size_t c = 0; c < x.size(); ++c) {
    const Wide difference = Wide(x[c]) - Wide(y[c]);
    sum += difference * difference;
  }
  return exp(-sum / (Wide(sigma) * Wide(sigma)));
}

TEST(GramTest, ErrorStaysWithinTheBound) {
  std::mt19937_64 random(1);
  double worst = 0.0;
  for (const size_t dim : {1u, 2u, 3u, 7u, 8u, 9u, 64u, 100u}) {
    for (const double scale : {1e-3, 0.1, 0.5, 2.0}) {
      const double sigma = 1.3;
      const std::vector<double> keys = RandomKeys(&random, 9, dim, scale);
      std::vector<double> row(9);
      for (size_t i = 0; i < 9; ++i) {
        GramRow(Key(keys, dim, i), keys, sigma, absl::MakeSpan(row));
        for (size_t j = 0; j < 9; ++j) {
          const Wide exact = ExactKernel(Key(keys, dim, i), Key(keys, dim, j), sigma);
          const double error = static_cast<double>(abs(exact - Wide(row[j])));
          const double bound = GramErrorBound(static_cast<int64_t>(dim));
          EXPECT_LE(error, bound) << "dim " << dim << " scale " << scale;
          worst = std::max(worst, error / bound);
        }
      }
    }
  }
  RecordProperty("worst_share_of_bound", std::to_string(worst));
  EXPECT_GT(worst, 0.05) << "the bound says nothing";
}

TEST(GramTest, SymmetricAndOneOnTheDiagonal) {
  std::mt19937_64 random(2);
  for (const size_t dim : {1u, 5u, 8u, 24u, 64u}) {
    const size_t n = 13;
    std::vector<double> keys = RandomKeys(&random, n, dim, 0.3);
    keys[0] = -0.0;
    std::vector<double> gram(n * n);
    for (size_t i = 0; i < n; ++i) {
      GramRow(Key(keys, dim, i), keys, 0.9, absl::MakeSpan(gram).subspan(i * n, n));
    }
    for (size_t i = 0; i < n; ++i) {
      EXPECT_EQ(gram[i * n + i], 1.0);
      for (size_t j = 0; j < n; ++j) {
        EXPECT_EQ(gram[i * n + j], gram[j * n + i]);
        EXPECT_LE(gram[i * n + j], 1.0);
      }
    }
  }
}

TEST(GramTest, EntryIsIndependentOfTheCall) {
  std::mt19937_64 random(3);
  const size_t dim = 21;
  const size_t n = 11;
  const std::vector<double> keys = RandomKeys(&random, n, dim, 0.3);
  std::vector<double> whole(n);
  GramRow(Key(keys, dim, 4), keys, 1.0, absl::MakeSpan(whole));
  for (size_t begin = 0; begin < n; ++begin) {
    for (size_t count = 0; begin + count <= n; ++count) {
      std::vector<double> part(count);
      GramRow(Key(keys, dim, 4), absl::MakeConstSpan(keys).subspan(begin * dim, count * dim), 1.0,
              absl::MakeSpan(part));
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(part[i], whole[begin + i]);
    }
  }
}

TEST(GramTest, FloatKeysAreWidened) {
  std::mt19937_64 random(4);
  const size_t dim = 19;
  const size_t n = 6;
  const std::vector<double> raw = RandomKeys(&random, n, dim, 0.3);
  const std::vector<float> narrow(raw.begin(), raw.end());
  const std::vector<double> keys(narrow.begin(), narrow.end());
  std::vector<double> from_float(n);
  std::vector<double> from_double(n);
  GramRow(absl::MakeConstSpan(narrow).subspan(dim, dim), narrow, 1.1, absl::MakeSpan(from_float));
  GramRow(Key(keys, dim, 1), keys, 1.1, absl::MakeSpan(from_double));
  EXPECT_EQ(from_float, from_double);
}

TEST(GramTest, FarKeysUnderflowToZero) {
  const std::vector<double> keys = {0.0, 30.0, 0x1.0p400, -0x1.0p400};
  std::vector<double> row(4);
  GramRow(absl::MakeConstSpan(keys).subspan(0, 1), keys, 1.0, absl::MakeSpan(row));
  EXPECT_EQ(row, (std::vector<double>{1.0, 0.0, 0.0, 0.0}));
}

}  // namespace
}  // namespace lethe
