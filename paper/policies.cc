#include "paper/policies.h"

#include <algorithm>
#include <numeric>

#include "kernels/gram/gram.h"

namespace lethe::paper {

std::vector<double> MassOf(double sigma, const Points& keys, const Points& queries) {
  std::vector<double> masses(static_cast<size_t>(keys.count()), 0.0);
  std::vector<double> row(masses.size());
  for (int64_t q = 0; q < queries.count(); ++q) {
    GramRow(queries.row(q), keys.x, sigma, absl::MakeSpan(row));
    for (size_t i = 0; i < row.size(); ++i) masses[i] += row[i];
  }
  return masses;
}

std::vector<int64_t> TopRanks(absl::Span<const double> masses, int64_t k) {
  std::vector<int64_t> ranks(masses.size());
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  std::stable_sort(ranks.begin(), ranks.end(), [&](int64_t a, int64_t b) {
    return masses[static_cast<size_t>(a)] > masses[static_cast<size_t>(b)];
  });
  ranks.resize(static_cast<size_t>(k));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int64_t> LastRanks(int64_t n, int64_t k) {
  std::vector<int64_t> ranks(static_cast<size_t>(k));
  std::iota(ranks.begin(), ranks.end(), n - k);
  return ranks;
}

}  // namespace lethe::paper
