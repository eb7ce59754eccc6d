#include "memory/svdd/cholesky.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hwy/highway.h"

#include "kernels/base/check.h"

namespace lethe::svdd {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D4 = hn::FixedTag<double, 4>;

constexpr size_t kFirstCapacity = 64;

// (column, x) <- (column, x) rotated so that x loses its weight on this column:
// new column = (column + s x)/c, new x = c x - s new column.
void RotateColumn(double c, double s, size_t count, double* column, double* x) {
  const double inverse = 1.0 / c;
  for (size_t i = 0; i < count; ++i) {
    const double rotated = std::fma(s, x[i], column[i]) * inverse;
    x[i] = std::fma(-s, rotated, c * x[i]);
    column[i] = rotated;
  }
}

}  // namespace

void Axpy(double scale, const double* x, size_t count, double* y) {
  const D4 d;
  const auto factor = hn::Set(d, scale);
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    hn::StoreU(hn::MulAdd(factor, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  }
  for (; i < count; ++i) y[i] = std::fma(scale, x[i], y[i]);
}

double FastDot(const double* x, const double* y, size_t count) {
  const D4 d;
  auto sum0 = hn::Zero(d);
  auto sum1 = hn::Zero(d);
  auto sum2 = hn::Zero(d);
  auto sum3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    sum0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, x + i + 4), hn::LoadU(d, y + i + 4), sum1);
    sum2 = hn::MulAdd(hn::LoadU(d, x + i + 8), hn::LoadU(d, y + i + 8), sum2);
    sum3 = hn::MulAdd(hn::LoadU(d, x + i + 12), hn::LoadU(d, y + i + 12), sum3);
  }
  for (; i + 4 <= count; i += 4) {
    sum0 = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum0);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < count; ++i) sum = std::fma(x[i], y[i], sum);
  return sum;
}

void CholeskyFactor::Clear() {
  ids_.clear();
  weights_.clear();
  std::fill(values_.begin(), values_.end(), 0.0);
}

void CholeskyFactor::Reserve(size_t size) {
  if (size <= stride_) return;
  const size_t capacity = std::max(kFirstCapacity, size + size / 2);
  WipedVector<double> values(capacity * capacity, 0.0);
  for (size_t j = 0; j < ids_.size(); ++j) {
    std::copy(Column(j) + j, Column(j) + ids_.size(), values.data() + j * capacity + j);
  }
  values_ = std::move(values);
  stride_ = capacity;
}

void CholeskyFactor::Append(int64_t id, absl::Span<const double> column, double weight) {
  LETHE_DCHECK(column.size() == size());
  const size_t s = size();
  Reserve(s + 1);
  std::vector<double> x(column.begin(), column.end());
  SolveLower(absl::MakeSpan(x));
  for (size_t j = 0; j < s; ++j) Column(j)[s] = x[j];
  const double ridge = ridge_ / weight;
  const double pivot = 2.0 * (1.0 + ridge) - FastDot(x.data(), x.data(), s);
  Column(s)[s] = std::sqrt(std::max(pivot, ridge));
  ids_.push_back(id);
  weights_.push_back(weight);
}

void CholeskyFactor::Remove(size_t position) {
  LETHE_DCHECK(position < size());
  const size_t s = size();
  // The deleted column's part below the diagonal goes back into the trailing block by rotations.
  std::vector<double> x(Column(position) + position + 1, Column(position) + s);
  for (size_t j = 0; j < position; ++j) {
    double* column = Column(j);
    std::memmove(column + position, column + position + 1, (s - position - 1) * sizeof(double));
    column[s - 1] = 0.0;
  }
  for (size_t j = position + 1; j < s; ++j) {
    double* column = Column(j);
    const size_t rest = j - position - 1;  // x[rest] belongs to row j
    const double diagonal = std::sqrt(std::fma(column[j], column[j], x[rest] * x[rest]));
    const double c = diagonal / column[j];
    const double t = x[rest] / column[j];
    RotateColumn(c, t, s - j - 1, column + j + 1, x.data() + rest + 1);
    double* to = Column(j - 1);
    to[j - 1] = diagonal;
    std::memcpy(to + j, column + j + 1, (s - j - 1) * sizeof(double));
  }
  double* last = Column(s - 1);
  std::fill(last, last + s, 0.0);
  for (size_t j = 0; j + 1 < s; ++j) Column(j)[s - 1] = 0.0;
  ids_.erase(ids_.begin() + static_cast<std::ptrdiff_t>(position));
  weights_.erase(weights_.begin() + static_cast<std::ptrdiff_t>(position));
}

void CholeskyFactor::SolveLower(absl::Span<double> x) const {
  LETHE_DCHECK(x.size() == size());
  const size_t s = size();
  for (size_t j = 0; j < s; ++j) {
    const double* column = Column(j);
    x[j] /= column[j];
    Axpy(-x[j], column + j + 1, s - j - 1, x.data() + j + 1);
  }
}

void CholeskyFactor::SolveLower(absl::Span<double> x, absl::Span<double> y) const {
  LETHE_DCHECK(x.size() == size() && y.size() == size());
  const size_t s = size();
  for (size_t j = 0; j < s; ++j) {
    const double* column = Column(j);
    x[j] /= column[j];
    y[j] /= column[j];
    Axpy(-x[j], column + j + 1, s - j - 1, x.data() + j + 1);
    Axpy(-y[j], column + j + 1, s - j - 1, y.data() + j + 1);
  }
}

void CholeskyFactor::SolveUpper(absl::Span<double> x) const {
  LETHE_DCHECK(x.size() == size());
  const size_t s = size();
  for (size_t j = s; j-- > 0;) {
    const double* column = Column(j);
    x[j] = (x[j] - FastDot(column + j + 1, x.data() + j + 1, s - j - 1)) / column[j];
  }
}

}  // namespace lethe::svdd
