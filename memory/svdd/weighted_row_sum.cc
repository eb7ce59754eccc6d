#include "memory/svdd/weighted_row_sum.h"

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"

#include "kernels/base/check.h"
#include "kernels/base/wiped.h"

namespace lethe::svdd {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D4 = hn::FixedTag<double, 4>;

constexpr size_t kRowsAtOnce = 8;
// Columns at a time: their sums stay in the first cache level, their keys in the second.
constexpr size_t kBlock = 512;

// sums += the weighted sum of up to eight rows.
void AddRows(const double* const* rows, const double* weights, size_t num_rows, size_t count,
             double* sums) {
  const D4 d;
  const size_t vector_count = count / 4 * 4;
  for (size_t i = 0; i < vector_count; i += 4) {
    auto sum = hn::Mul(hn::Set(d, weights[0]), hn::LoadU(d, rows[0] + i));
    for (size_t r = 1; r < num_rows; ++r) {
      sum = hn::MulAdd(hn::Set(d, weights[r]), hn::LoadU(d, rows[r] + i), sum);
    }
    hn::StoreU(hn::Add(sum, hn::LoadU(d, sums + i)), d, sums + i);
  }
  for (size_t i = vector_count; i < count; ++i) {
    double sum = weights[0] * rows[0][i];
    for (size_t r = 1; r < num_rows; ++r) sum = std::fma(weights[r], rows[r][i], sum);
    sums[i] += sum;
  }
}

}  // namespace

void WeightedRowSum(GramCache* gram, absl::Span<const int64_t> indices,
                    absl::Span<const double> factors, std::vector<double>* sums,
                    size_t keep_bytes) {
  LETHE_CHECK(indices.size() == factors.size());
  const auto n = static_cast<size_t>(gram->num_groups());
  sums->assign(n, 0.0);
  if (indices.size() * n * sizeof(double) <= keep_bytes) {
    for (const int64_t index : indices) gram->Row(index);
  }
  WipedVector<double> evaluated(kRowsAtOnce * kBlock);
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t count = std::min(kBlock, n - begin);
    for (size_t k = 0; k < indices.size(); k += kRowsAtOnce) {
      const size_t here = std::min(kRowsAtOnce, indices.size() - k);
      const double* rows[kRowsAtOnce];
      for (size_t r = 0; r < here; ++r) {
        rows[r] = gram->Part(indices[k + r], static_cast<int64_t>(begin),
                             absl::MakeSpan(evaluated).subspan(r * kBlock, count));
      }
      AddRows(rows, factors.data() + k, here, count, sums->data() + begin);
    }
  }
}

}  // namespace lethe::svdd
