#include "kernels/vla/vla_ref.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/check.h"

namespace lethe {
namespace {

constexpr double kL2EpsilonRef = 1e-12;

double Dot(const double* a, const double* b, size_t size) {
  double sum = 0.0;
  for (size_t i = 0; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<double> L2(const std::vector<double>& x) {
  const double norm = std::sqrt(Dot(x.data(), x.data(), x.size()) + kL2EpsilonRef);
  std::vector<double> unit(x);
  for (double& element : unit) element /= norm;
  return unit;
}

// matrix [rows][x.size()] times x.
std::vector<double> Times(const std::vector<double>& matrix, const std::vector<double>& x) {
  std::vector<double> product(matrix.size() / x.size());
  for (size_t i = 0; i < product.size(); ++i) {
    product[i] = Dot(&matrix[i * x.size()], x.data(), x.size());
  }
  return product;
}

}  // namespace

VlaRef::VlaRef(const VlaOptions& options)
    : options_(options),
      key_dim_(static_cast<size_t>(options.key_dim)),
      value_dim_(static_cast<size_t>(options.value_dim)),
      a_(key_dim_ * key_dim_),
      s_(value_dim_ * key_dim_),
      key_sum_(key_dim_),
      read_(value_dim_) {
  for (size_t i = 0; i < key_dim_; ++i) a_[i * key_dim_ + i] = 1.0 / options_.lambda0;
}

void VlaRef::UpdateA(const std::vector<double>& u) {
  const std::vector<double> z = Times(a_, u);
  const double denominator = std::max(1.0 + Dot(u.data(), z.data(), key_dim_), kVlaDenominatorMin);
  for (size_t i = 0; i < key_dim_; ++i) {
    for (size_t j = 0; j < key_dim_; ++j) a_[i * key_dim_ + j] -= z[i] * z[j] / denominator;
  }
  ++step_count_;
  if (options_.nudge && step_count_ % kVlaNudgePeriod == 0) {
    for (size_t i = 0; i < key_dim_; ++i) a_[i * key_dim_ + i] += kVlaNudge;
  }
}

void VlaRef::Step(const std::vector<double>& q, const std::vector<double>& k,
                  const std::vector<double>& v, const std::vector<double>& u) {
  LETHE_CHECK(q.size() == key_dim_ && k.size() == key_dim_ && v.size() == value_dim_);
  const bool rls = options_.variant == VlaVariant::kRls;
  LETHE_CHECK(rls ? u.empty() : u.size() == key_dim_);
  key_unit_ = L2(k);
  UpdateA(rls ? key_unit_ : u);
  alpha_ = Times(a_, key_unit_);
  if (!rls) alpha_ = L2(alpha_);
  for (size_t i = 0; i < value_dim_; ++i) {
    const double residual = v[i] - Dot(&s_[i * key_dim_], key_unit_.data(), key_dim_);
    for (size_t j = 0; j < key_dim_; ++j) s_[i * key_dim_ + j] += residual * alpha_[j];
  }
  for (size_t j = 0; j < key_dim_; ++j) key_sum_[j] += k[j];
  Read(q);
}

void VlaRef::Read(const std::vector<double>& q) {
  read_ = Times(s_, q);
  double divisor = 0.0;
  if (options_.read_norm == VlaReadNorm::kPaper) {
    divisor = std::max(Dot(key_sum_.data(), q.data(), key_dim_), kVlaDenominatorMin);
  } else {
    divisor =
        std::sqrt(Dot(read_.data(), read_.data(), value_dim_) / static_cast<double>(value_dim_) +
                  kVlaReadEpsilon);
  }
  for (double& element : read_) element /= divisor;
}

}  // namespace lethe
