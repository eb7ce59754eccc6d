// Goal: the held sums are what plain sums are, within the stated error, and keep nothing of what was
// taken away.
// Method: random changes of totals, also far apart in size, against long double sums and against sums
// that only ever saw the totals left.
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "memory/svdd/kernel_sums.h"

namespace lethe::svdd {
namespace {

std::vector<std::vector<double>> RandomRows(size_t num_rows, size_t size, std::mt19937_64* random) {
  std::uniform_real_distribution<double> uniform;
  std::vector<std::vector<double>> rows(num_rows, std::vector<double>(size));
  for (std::vector<double>& row : rows) {
    for (double& k : row) k = std::exp(-20.0 * uniform(*random));
  }
  return rows;
}

class KernelSumsTest : public testing::TestWithParam<double> {};

TEST_P(KernelSumsTest, WithinTheErrorOfPlainSumsAndExactlyReversible) {
  std::mt19937_64 random(1);
  const double box_mass = GetParam();
  for (const size_t size : {1u, 3u, 4u, 130u}) {
    const std::vector<std::vector<double>> rows = RandomRows(40, size, &random);
    std::vector<double> totals(rows.size(), 0.0);
    KernelSums sums(box_mass);
    sums.Resize(size);
    std::uniform_real_distribution<double> uniform;
    for (int change = 0; change < 400; ++change) {
      const size_t j = random() % rows.size();
      // Of one copy up to a fortieth of the mass.
      const double after =
          random() % 3 == 0 ? 0.0 : std::pow(box_mass / 40.0, uniform(random)) * uniform(random);
      sums.Change(rows[j], totals[j], after);
      totals[j] = after;
    }
    KernelSums fresh(box_mass);
    fresh.Resize(size);
    for (size_t j = 0; j < rows.size(); ++j) fresh.Change(rows[j], 0.0, totals[j]);
    const double error = sums.Error(totals);
    EXPECT_LE(error, 1e-9 * box_mass);
    for (size_t i = 0; i < size; ++i) {
      long double plain = 0.0L;
      for (size_t j = 0; j < rows.size(); ++j) {
        plain += static_cast<long double>(totals[j]) * static_cast<long double>(rows[j][i]);
      }
      EXPECT_LE(std::abs(static_cast<double>(sums.Value(i) - plain)), error);
      EXPECT_EQ(sums.Value(i), fresh.Value(i)) << "something was kept";
    }
    for (size_t j = 0; j < rows.size(); ++j) sums.Change(rows[j], totals[j], 0.0);
    for (size_t i = 0; i < size; ++i) EXPECT_EQ(sums.Value(i), 0.0);
  }
}

TEST_P(KernelSumsTest, AppendedAndReorderedGroupsHaveTheSumsOfChanges) {
  std::mt19937_64 random(2);
  const std::vector<std::vector<double>> rows = RandomRows(12, 9, &random);
  std::vector<double> totals;
  for (size_t j = 0; j < rows.size(); ++j) {
    totals.push_back(std::ldexp(0.7, static_cast<int>(random() % 8)) * GetParam() / 2048.0);
  }
  KernelSums whole(GetParam());
  whole.Resize(9);
  for (size_t j = 0; j < rows.size(); ++j) whole.Change(rows[j], 0.0, totals[j]);
  KernelSums grown(GetParam());
  for (size_t i = 0; i < 9; ++i) {
    std::vector<double> column(rows.size());
    for (size_t j = 0; j < rows.size(); ++j) column[j] = rows[j][i];
    grown.Append(column, totals);
    EXPECT_EQ(grown.Value(i), whole.Value(i));
  }
  grown.SetZero(3);
  grown.Reorder({8, 0, 3});
  ASSERT_EQ(grown.size(), 3u);
  EXPECT_EQ(grown.Value(0), whole.Value(8));
  EXPECT_EQ(grown.Value(1), whole.Value(0));
  EXPECT_EQ(grown.Value(2), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Masses, KernelSumsTest,
                         testing::Values(1.0, 40.0, 1638.4, 16384.0, 16385.0, 1048576.0));

}  // namespace
}  // namespace lethe::svdd
