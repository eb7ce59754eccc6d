#include "client/median_sigma.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace lethe::client {
namespace {

constexpr double kSigmaMin = 0x1.0p-20;
constexpr double kSigmaMax = 0x1.0p20;

double SquaredDistance(const double* a, const double* b, int64_t num_columns) {
  double sum = 0;
  for (int64_t c = 0; c < num_columns; ++c) sum += (a[c] - b[c]) * (a[c] - b[c]);
  return sum;
}

std::vector<double> SquaredDistances(const VectorMatrix& sample, int64_t num_rows) {
  std::vector<const double*> rows;
  for (int64_t i = 0; i < num_rows; ++i) {
    rows.push_back(sample.values.data() + i * sample.num_rows / num_rows * sample.num_columns);
  }
  std::vector<double> distances;
  distances.reserve(rows.size() * (rows.size() - 1) / 2);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = i + 1; j < rows.size(); ++j) {
      distances.push_back(SquaredDistance(rows[i], rows[j], sample.num_columns));
    }
  }
  return distances;
}

double Median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  if (numbers.size() % 2 == 1) return *middle;
  return (*std::max_element(numbers.begin(), middle) + *middle) / 2;
}

}  // namespace

absl::StatusOr<MedianWidth> MedianSigma(const VectorMatrix& sample, int64_t rows_max) {
  MedianWidth width;
  width.num_rows = std::min(sample.num_rows, rows_max);
  if (width.num_rows < 2) {
    return absl::InvalidArgumentError("the median rule needs a sample of at least 2 rows");
  }
  std::vector<double> distances = SquaredDistances(sample, width.num_rows);
  width.num_pairs = static_cast<int64_t>(distances.size());
  width.sigma = std::sqrt(Median(std::move(distances)));
  if (width.sigma >= kSigmaMin && width.sigma <= kSigmaMax) return width;
  return absl::InvalidArgumentError(
      width.sigma == 0 ? "at least half of the sample's pairs are equal rows: give a sample "
                         "without repeats"
                       : "the sample's median distance is outside 2^-20 to 2^20, the widths that a "
                         "session takes: scale the vectors");
}

}  // namespace lethe::client
