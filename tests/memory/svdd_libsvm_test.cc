// Goal: by others' measure the optimum is right: with a kernel of constant diagonal the problem is
// libsvm's one-class SVM up to scaling, so both decision functions agree on public data sets.
// Method: ADBench's classical outlier sets (LETHE_OUTLIER_DATA or ../shared/data/outliers; skipped where
// absent). Up to 1,000 inliers, standardised by themselves, train both; every row is a query. libsvm
// minimises 1/2 a'K a - with sum a = nu n, 0 <= a <= 1 - and decides by sum a kappa - lambda/2; ours is
// 2/m of that: f = rho - 1 + 2/m sum a kappa, rho = 1 - lambda/m.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <libsvm/svm.h>

#include "kernels/gram/gram.h"
#include "memory/svdd/canonical.h"
#include "tests/memory/svdd_testing.h"

namespace lethe::svdd {
namespace {

constexpr int64_t kTrainMax = 1000;
constexpr double kNu = 0.1;
constexpr double kRidge = 1e-8;  // the smallest there is: libsvm has none

std::filesystem::path DataDirectory() {
  const char* named = std::getenv("LETHE_OUTLIER_DATA");
  return named != nullptr ? named : LETHE_SOURCE_DIR "/../shared/data/outliers";
}

struct Table {
  int64_t num_rows = 0;
  int64_t num_columns = 0;
  std::vector<double> x;  // [num_rows][num_columns]
  std::vector<bool> is_outlier;
};

Table ReadTable(const std::filesystem::path& file) {
  const std::string command = LETHE_SOURCE_DIR "/tests/testing/npz_rows " + file.string();
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  Table table;
  long rows = 0;
  long columns = 0;
  EXPECT_EQ(std::fscanf(pipe.get(), "%ld %ld", &rows, &columns), 2);
  table.num_rows = rows;
  table.num_columns = columns;
  for (long r = 0; r < rows; ++r) {
    double value = 0.0;
    for (long c = 0; c < columns && std::fscanf(pipe.get(), "%lf", &value) == 1; ++c) {
      table.x.push_back(value);
    }
    int label = 0;
    EXPECT_EQ(std::fscanf(pipe.get(), "%d", &label), 1);
    table.is_outlier.push_back(label != 0);
  }
  return table;
}

// Ranks of the training rows: inliers, in a shuffled order.
std::vector<int64_t> TrainingRows(const Table& table) {
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < table.num_rows; ++r) {
    if (!table.is_outlier[static_cast<size_t>(r)]) rows.push_back(r);
  }
  std::mt19937_64 random(1);
  for (size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random() % i]);
  if (static_cast<int64_t>(rows.size()) > kTrainMax) rows.resize(kTrainMax);
  return rows;
}

void Standardise(const std::vector<int64_t>& training, Table* table) {
  const auto at = [&](int64_t r, int64_t c) -> double& {
    return table->x[static_cast<size_t>(r * table->num_columns + c)];
  };
  const auto n = static_cast<double>(training.size());
  for (int64_t c = 0; c < table->num_columns; ++c) {
    double sum = 0.0;
    for (const int64_t r : training) sum += at(r, c);
    double squares = 0.0;
    for (const int64_t r : training) squares += (at(r, c) - sum / n) * (at(r, c) - sum / n);
    const double deviation = squares > 0.0 ? std::sqrt(squares / n) : 1.0;
    for (int64_t r = 0; r < table->num_rows; ++r) at(r, c) = (at(r, c) - sum / n) / deviation;
  }
}

// sigma^2 is the median squared distance of training rows.
double MedianSigma(absl::Span<const double> keys, int64_t dim) {
  std::vector<double> squares;
  const auto n = static_cast<int64_t>(keys.size()) / dim;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < std::min(n, i + 40); ++j) {
      double square = 0.0;
      for (int64_t c = 0; c < dim; ++c) {
        const double d =
            keys[static_cast<size_t>(i * dim + c)] - keys[static_cast<size_t>(j * dim + c)];
        square += d * d;
      }
      squares.push_back(square);
    }
  }
  const auto middle = squares.begin() + static_cast<std::ptrdiff_t>(squares.size() / 2);
  std::nth_element(squares.begin(), middle, squares.end());
  return std::sqrt(*middle);
}

std::vector<svm_node> Nodes(absl::Span<const double> row) {
  std::vector<svm_node> nodes;
  for (size_t c = 0; c < row.size(); ++c) nodes.push_back({static_cast<int>(c) + 1, row[c]});
  nodes.push_back({-1, 0.0});
  return nodes;
}

// libsvm's decision values at every row of the table.
std::vector<double> LibsvmDecisions(const Table& table, absl::Span<const double> keys,
                                    double sigma) {
  const auto dim = static_cast<size_t>(table.num_columns);
  std::vector<std::vector<svm_node>> rows;
  for (size_t i = 0; i < keys.size(); i += dim) rows.push_back(Nodes(keys.subspan(i, dim)));
  std::vector<svm_node*> pointers(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) pointers[i] = rows[i].data();
  std::vector<double> labels(rows.size(), 1.0);
  const svm_problem problem = {static_cast<int>(rows.size()), labels.data(), pointers.data()};
  svm_parameter parameter = {};
  parameter.svm_type = ONE_CLASS;
  parameter.kernel_type = RBF;
  parameter.gamma = 1.0 / (sigma * sigma);
  parameter.nu = kNu;
  parameter.eps = 1e-10;
  parameter.cache_size = 200;
  svm_set_print_string_function([](const char* /*text*/) {});
  const std::unique_ptr<svm_model, void (*)(svm_model*)> model(
      svm_train(&problem, &parameter), [](svm_model* m) { svm_free_and_destroy_model(&m); });
  std::vector<double> decisions;
  for (size_t i = 0; i < table.x.size(); i += dim) {
    double decision = 0.0;
    svm_predict_values(model.get(), Nodes(absl::MakeConstSpan(table.x).subspan(i, dim)).data(),
                       &decision);
    decisions.push_back(decision);
  }
  return decisions;
}

std::vector<double> OurDecisions(const Table& table, absl::Span<const double> keys, double sigma) {
  const auto dim = static_cast<size_t>(table.num_columns);
  const size_t num_keys = keys.size() / dim;
  const Params params =
      MakeParamsOrDie(sigma, kNu * static_cast<double>(num_keys), kRidge, table.num_columns);
  const absl::StatusOr<Solution> solution = SolveCanonical(params, keys);
  EXPECT_TRUE(solution.ok()) << solution.status();
  std::vector<double> row(solution->a.size());
  std::vector<double> decisions;
  for (size_t i = 0; i < table.x.size(); i += dim) {
    GramRow(absl::MakeConstSpan(table.x).subspan(i, dim), keys, sigma, absl::MakeSpan(row));
    const double sum = std::inner_product(row.begin(), row.end(), solution->a.begin(), 0.0);
    decisions.push_back(solution->rho - 1.0 + 2.0 / solution->mass * sum);
  }
  return decisions;
}

// The chance that an outlier decides lower than an inlier.
double Auroc(const std::vector<double>& decisions, const std::vector<bool>& is_outlier) {
  std::vector<size_t> order(decisions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t i, size_t j) { return decisions[i] < decisions[j]; });
  double outliers = 0.0;
  double wins = 0.0;
  for (size_t first = 0; first < order.size();) {
    size_t last = first;  // ties count half
    double tied_outliers = 0.0;
    for (; last < order.size() && decisions[order[last]] == decisions[order[first]]; ++last) {
      tied_outliers += is_outlier[order[last]] ? 1.0 : 0.0;
    }
    const double tied_inliers = static_cast<double>(last - first) - tied_outliers;
    wins += tied_inliers * (outliers + 0.5 * tied_outliers);
    outliers += tied_outliers;
    first = last;
  }
  return wins / (outliers * (static_cast<double>(order.size()) - outliers));
}

class LibsvmTest : public testing::TestWithParam<const char*> {};

TEST_P(LibsvmTest, DecidesAlike) {
  const std::filesystem::path file = DataDirectory() / (std::string(GetParam()) + ".npz");
  if (!std::filesystem::exists(file)) {
    GTEST_SKIP() << "no " << file << " (set LETHE_OUTLIER_DATA to ADBench's Classical folder)";
  }
  Table table = ReadTable(file);
  const std::vector<int64_t> training = TrainingRows(table);
  Standardise(training, &table);
  const auto dim = static_cast<size_t>(table.num_columns);
  std::vector<double> keys;
  for (const int64_t r : training) {
    const auto begin = table.x.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(r) * dim);
    keys.insert(keys.end(), begin, begin + static_cast<std::ptrdiff_t>(dim));
  }
  const double sigma = MedianSigma(keys, table.num_columns);
  const std::vector<double> ours = OurDecisions(table, keys, sigma);
  std::vector<double> theirs = LibsvmDecisions(table, keys, sigma);
  const double scale = 2.0 / (kNu * static_cast<double>(training.size()));
  double largest = 0.0;
  double apart = 0.0;
  for (size_t i = 0; i < ours.size(); ++i) {
    theirs[i] *= scale;
    largest = std::max(largest, std::abs(theirs[i]));
    apart = std::max(apart, std::abs(ours[i] - theirs[i]));
  }
  const double our_auroc = Auroc(ours, table.is_outlier);
  const double their_auroc = Auroc(theirs, table.is_outlier);
  std::printf(
      "%-20s %5zu keys, %5zu queries: |f - f_libsvm| <= %.1e of max |f|; AUROC %.6f, %.6f\n",
      GetParam(), training.size(), ours.size(), apart / largest, our_auroc, their_auroc);
  EXPECT_LE(apart, 1e-6 * largest);
  EXPECT_NEAR(our_auroc, their_auroc, 5e-5);
}

INSTANTIATE_TEST_SUITE_P(Adbench, LibsvmTest,
                         testing::Values("23_mammography", "29_Pima", "2_annthyroid",
                                         "31_satimage-2", "32_shuttle", "38_thyroid",
                                         "39_vertebral", "42_WBC", "43_WDBC", "4_breastw",
                                         "6_cardio", "7_Cardiotocography"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return "Set" + name;
                         });

}  // namespace
}  // namespace lethe::svdd
