#include "memory/svdd/polish.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "hwy/highway.h"

#include "kernels/base/check.h"

namespace lethe::svdd {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D4 = hn::FixedTag<double, 4>;
using V4 = hn::Vec<D4>;

constexpr size_t kRowsAtOnce = 8;     // two vectors
constexpr size_t kColumnsAtOnce = 8;  // joined in plain lanes before a double-double addition
constexpr int kMaxSteps = 60;
constexpr double kRadiusGoal = 0x1.0p-80;
constexpr double kLargestRadius = 0x1.0p-56;  // above it a solution is not used
constexpr double kGridBits = 0x1.0p60;
constexpr double kGridBelow = 0x1.0p-8;  // ulps of doubles above this are >= 2^-60

HWY_INLINE void VectorTwoSum(V4 a, V4 b, V4* sum, V4* error) {
  *sum = hn::Add(a, b);
  const V4 b_part = hn::Sub(*sum, a);
  *error = hn::Add(hn::Sub(a, hn::Sub(*sum, b_part)), hn::Sub(b, b_part));
}

// hi + lo += high + low, as the accurate double-double sum.
HWY_INLINE void VectorAdd(V4 high, V4 low, V4* hi, V4* lo) {
  V4 s, e, t, f;
  VectorTwoSum(*hi, high, &s, &e);
  VectorTwoSum(*lo, low, &t, &f);
  e = hn::Add(e, t);
  const V4 joined = hn::Add(s, e);
  e = hn::Sub(e, hn::Sub(joined, s));
  e = hn::Add(e, f);
  *hi = hn::Add(joined, e);
  *lo = hn::Sub(e, hn::Sub(*hi, joined));
}

// out_i = sum_c K_ic x_c for four rows. Blocks of 8 columns run in Dot2 (Ogita, Rump, Oishi 2005:
// error (8+3)^2 u^2 of the block's magnitude), their sums in double-double.
HWY_INLINE void RowsTimes(const double* gram, size_t stride, absl::Span<const DoubleDouble> x,
                          DoubleDouble* out) {
  const D4 d;
  V4 hi = hn::Zero(d);
  V4 lo = hn::Zero(d);
  for (size_t begin = 0; begin < x.size(); begin += kColumnsAtOnce) {
    const size_t end = std::min(begin + kColumnsAtOnce, x.size());
    V4 block_hi = hn::Zero(d);
    V4 block_lo = hn::Zero(d);
    for (size_t c = begin; c < end; ++c) {
      const V4 k = hn::LoadU(d, gram + c * stride);
      const V4 x_hi = hn::Set(d, x[c].hi);
      const V4 product = hn::Mul(k, x_hi);
      V4 low = hn::MulSub(k, x_hi, product);
      low = hn::MulAdd(k, hn::Set(d, x[c].lo), low);
      V4 sum, error;
      VectorTwoSum(block_hi, product, &sum, &error);
      block_hi = sum;
      block_lo = hn::Add(block_lo, hn::Add(error, low));
    }
    VectorAdd(block_hi, block_lo, &hi, &lo);
  }
  double high[4];
  double low[4];
  hn::StoreU(hi, d, high);
  hn::StoreU(lo, d, low);
  for (size_t i = 0; i < 4; ++i) out[i] = {high[i], low[i]};
}

// All rows; gram has whole vectors of rows.
void MatrixTimes(const double* gram, size_t stride, absl::Span<const DoubleDouble> x,
                 std::vector<DoubleDouble>* out) {
  out->resize(stride);
  for (size_t i = 0; i < stride; i += 4) RowsTimes(gram + i, stride, x, out->data() + i);
}

// Bounds are rounded up by this factor, which covers the rounding of their own evaluation.
constexpr double kUp = 1.0 + 0x1.0p-40;

// Within 2^-180 of the middle of two grid values counts as on it, and goes down.
WideFixed Tie() { return WideFixed::FromDouble(0x1.0p-180); }

DoubleDouble ToDoubleDouble(const WideFixed& x) {
  const double high = x.ToDouble();
  WideFixed rest = x;
  rest -= WideFixed::FromDouble(high);
  return QuickTwoSum(high, rest.ToDouble());
}

// The grid values on both sides of x; equal when x is one and far from a middle.
struct Neighbours {
  double low;
  double high;
};

Neighbours NeighboursOf(const DoubleDouble& x) {
  int exponent = 0;
  std::frexp(x.hi, &exponent);
  const double spacing = std::max(std::ldexp(1.0, exponent - 53), 1.0 / kGridBits);
  return {RoundToGrid(x - 0.4375 * spacing), RoundToGrid(x + 0.4375 * spacing)};
}

bool AboveMiddle(const WideFixed& twice, const Neighbours& near) {
  WideFixed excess = twice;
  excess -= WideFixed::FromDouble(near.low);
  excess -= WideFixed::FromDouble(near.high);
  return Tie() < excess;
}

}  // namespace

struct PartitionSystem::Wide {
  std::vector<WideFixed> a;
  WideFixed lambda;
};

double RoundToGrid(const DoubleDouble& x) {
  if (std::abs(x.hi) >= kGridBelow) return x.hi + x.lo;
  const double scaled = x.hi * kGridBits;
  double whole = std::nearbyint(scaled);
  const DoubleDouble rest = TwoSum(scaled - whole, x.lo * kGridBits);
  if (rest > 0.5) whole += 1.0;
  if (rest < -0.5) whole -= 1.0;
  return whole / kGridBits;
}

void SyncFactor(GramCache* gram, absl::Span<const double> weights,
                const std::vector<int64_t>& margin, CholeskyFactor* factor) {
  for (size_t p = factor->size(); p-- > 0;) {
    const int64_t id = factor->ids()[p];
    const bool stays = std::binary_search(margin.begin(), margin.end(), id) &&
                       factor->weights()[p] == weights[static_cast<size_t>(id)];
    if (!stays) factor->Remove(p);
  }
  std::vector<int64_t> present = factor->ids();
  std::sort(present.begin(), present.end());
  for (const int64_t id : margin) {
    if (std::binary_search(present.begin(), present.end(), id)) continue;
    std::vector<double> column(factor->size());
    const std::vector<int64_t> ids = factor->ids();
    gram->Block(ids, {id}, absl::MakeSpan(column));
    for (double& value : column) value *= 2.0;
    factor->Append(id, column, weights[static_cast<size_t>(id)]);
  }
}

PartitionSystem::PartitionSystem(GramCache* gram, double mass, double ridge, double ridge_lower,
                                 std::vector<int64_t> margin, std::vector<int64_t> error)
    : cache_(gram),
      mass_(mass),
      ridge_(ridge),
      ridge_lower_(ridge_lower),
      margin_(std::move(margin)),
      error_(std::move(error)),
      stride_((margin_.size() + kRowsAtOnce - 1) / kRowsAtOnce * kRowsAtOnce) {
  LETHE_CHECK(!margin_.empty() && ridge_lower > 0.0);
  const size_t s = margin_.size();
  const absl::Span<const double> weights = gram->weights();
  for (const int64_t id : margin_) {
    weights_.push_back(weights[static_cast<size_t>(id)]);
    copies_ += weights_.back();
  }
  std::vector<DoubleDouble> error_weights;
  for (const int64_t id : error_) error_weights.emplace_back(weights[static_cast<size_t>(id)]);
  for (const DoubleDouble& weight : error_weights) error_copies_ += weight.hi;
  FillColumns();
  MatrixTimes(gram_.data() + s * stride_, stride_, error_weights, &error_part_);
  error_part_.resize(s);
}

// K is symmetric bit for bit, so the rows of S hold the columns of E as well.
void PartitionSystem::FillColumns() {
  const size_t s = margin_.size();
  gram_ = cache_->TakeBuffer(stride_ * (s + error_.size()));
  const std::vector<double> zeros(static_cast<size_t>(cache_->num_groups()), 0.0);
  for (size_t first = 0; first < s; first += kRowsAtOnce) {
    const double* rows[kRowsAtOnce];
    for (size_t k = 0; k < kRowsAtOnce; ++k) {
      rows[k] = first + k < s ? cache_->Row(margin_[first + k]).data() : zeros.data();
    }
    for (size_t c = 0; c < s + error_.size(); ++c) {
      const auto column = static_cast<size_t>(c < s ? margin_[c] : error_[c - s]);
      for (size_t k = 0; k < kRowsAtOnce; ++k) gram_[c * stride_ + first + k] = rows[k][column];
    }
  }
}

PartitionSystem::~PartitionSystem() { cache_->GiveBuffer(std::move(gram_)); }

bool PartitionSystem::Permute(const CholeskyFactor& factor) {
  if (factor.size() != margin_.size()) return false;
  factor_ = &factor;
  place_.clear();
  for (const int64_t id : factor.ids()) {
    const auto at = std::lower_bound(margin_.begin(), margin_.end(), id);
    if (at == margin_.end() || *at != id) return false;
    place_.push_back(static_cast<size_t>(at - margin_.begin()));
  }
  std::vector<double> ones(margin_.size(), 1.0);
  factor.Solve(absl::MakeSpan(ones));
  inverse_ones_.assign(margin_.size(), 0.0);
  inverse_sum_ = 0.0;
  for (size_t p = 0; p < ones.size(); ++p) {
    inverse_ones_[place_[p]] = ones[p];
    inverse_sum_ += ones[p];
  }
  return std::isfinite(inverse_sum_) && inverse_sum_ > 0.0;
}

double PartitionSystem::Norm(const std::vector<double>& x) const {
  std::vector<double> weighted(x.size());
  for (size_t i = 0; i < x.size(); ++i) weighted[i] = weights_[i] * x[i];
  return std::sqrt(FastDot(weighted.data(), x.data(), x.size()));
}

double PartitionSystem::Residual(std::vector<double>* residual) const {
  const size_t s = margin_.size();
  std::vector<DoubleDouble> totals(s);
  for (size_t i = 0; i < s; ++i) totals[i] = a_[i] * weights_[i];
  std::vector<DoubleDouble> product;
  MatrixTimes(gram_.data(), stride_, totals, &product);
  residual->resize(s);
  DoubleDouble sum = TwoSum(mass_, -error_copies_);
  for (size_t i = 0; i < s; ++i) {
    const DoubleDouble half = product[i] + error_part_[i] + a_[i] * ridge_;
    (*residual)[i] = (lambda_ - half * 2.0).hi;
    sum += -totals[i];
  }
  return sum.hi;
}

// Error of one entry of Residual: the blocks (11^2 u^2), their double-double sums and those of
// error_part_ (under 3u^2 each), w a (2u^2), ridge and lambda terms, all of magnitude at most 2 sum
// K w|a| + lambda. With a >= 0 the sum is lambda itself up to the residual.
double PartitionSystem::RowErrorBound() const {
  double absolute = 0.0;
  double sum = 0.0;
  for (size_t i = 0; i < a_.size(); ++i) {
    absolute += weights_[i] * std::abs(a_[i].hi);
    sum += weights_[i] * a_[i].hi;
  }
  const double columns = static_cast<double>(margin_.size() + error_.size());
  const bool nonnegative = absolute <= sum * kUp;
  const double loose = 2.0 * (absolute + error_copies_) * (1.0 + ridge_);
  const double magnitude =
      std::abs(lambda_.hi) + (nonnegative ? std::abs(lambda_.hi) + 1.0 : loose);
  return (100.0 + 2.0 * columns) * 0x1.0p-105 * magnitude;
}

PartitionSystem::Radius PartitionSystem::RadiusOf(double sum_residual, double residual_norm) const {
  const double s = copies_;
  const double root = std::sqrt(s);
  const double along = sum_residual / root;
  const double across = (residual_norm + 2.0 * s * (1.0 + ridge_) * along) / (2.0 * ridge_lower_);
  const double radius = (along + across) * kUp;
  return {radius, (residual_norm / root + 2.0 * root * (1.0 + ridge_) * radius) * kUp};
}

// The factor is of the totals w a.
void PartitionSystem::Correction(double sum_residual, const std::vector<double>& residual,
                                 std::vector<double>* delta, double* delta_lambda) const {
  const size_t s = margin_.size();
  std::vector<double> solved(s);
  for (size_t p = 0; p < s; ++p) solved[p] = residual[place_[p]];
  factor_->Solve(absl::MakeSpan(solved));
  double sum = 0.0;
  for (const double x : solved) sum += x;
  *delta_lambda = (sum_residual - sum) / inverse_sum_;
  delta->resize(s);
  for (size_t p = 0; p < s; ++p) {
    const size_t i = place_[p];
    (*delta)[i] = (solved[p] + *delta_lambda * inverse_ones_[i]) / weights_[i];
  }
}

bool PartitionSystem::Refine(const CholeskyFactor& factor) {
  if (!Permute(factor)) return false;
  const size_t s = margin_.size();
  const double root = std::sqrt(copies_);
  a_.assign(s, DoubleDouble());
  lambda_ = DoubleDouble();
  std::vector<double> residual;
  std::vector<double> delta;
  double previous = std::numeric_limits<double>::infinity();
  for (int step = 0; step < kMaxSteps; ++step) {
    const double sum_residual = Residual(&residual);
    // 3u^2 a sum, 2u^2 a product w a.
    const double sum_error =
        (4.0 * static_cast<double>(s) + 8.0) * 0x1.0p-106 * (mass_ + error_copies_ + 1.0);
    sum_residual_ = std::abs(sum_residual) + sum_error;
    residual_norm_ = Norm(residual) + root * RowErrorBound();
    const Radius radius = RadiusOf(sum_residual_, residual_norm_);
    radius_ = radius.a;
    lambda_radius_ = radius.lambda;
    // Three steps at least: the first bound is that of the zero vector.
    if (step >= 3 && (radius_ <= kRadiusGoal || !(radius_ < 0.5 * previous))) break;
    previous = radius_;
    double delta_lambda = 0.0;
    Correction(sum_residual, residual, &delta, &delta_lambda);
    for (size_t i = 0; i < s; ++i) a_[i] += delta[i];
    lambda_ += delta_lambda;
  }
  return radius_ <= kLargestRadius;
}

double PartitionSystem::WideResidual(const Wide& wide, std::vector<double>* residual) const {
  const size_t s = margin_.size();
  residual->resize(s);
  WideFixed sum = WideFixed::FromDouble(mass_);
  sum -= WideFixed::FromDouble(error_copies_);
  std::vector<WideFixed> totals(s);  // w a, each within 2^-255
  for (size_t i = 0; i < s; ++i) {
    totals[i].AddProduct(weights_[i], wide.a[i]);
    sum -= totals[i];
  }
  for (size_t i = 0; i < s; ++i) {
    WideFixed row = wide.lambda;
    for (size_t c = 0; c < s; ++c) row.AddProduct(-2.0 * gram_[c * stride_ + i], totals[c]);
    for (size_t c = s; c < s + error_.size(); ++c) {
      const double weight = cache_->weights()[static_cast<size_t>(error_[c - s])];
      row.AddProduct(-2.0 * gram_[c * stride_ + i], WideFixed::FromDouble(weight));
    }
    row.AddProduct(-2.0 * ridge_, wide.a[i]);
    (*residual)[i] = row.ToDouble();
  }
  return sum.ToDouble();
}

bool PartitionSystem::RefineWide(Wide* wide) const {
  const size_t s = margin_.size();
  wide->a.clear();
  for (const DoubleDouble& x : a_) {
    wide->a.push_back(WideFixed::FromDouble(x.hi));
    wide->a.back() += WideFixed::FromDouble(x.lo);
  }
  wide->lambda = WideFixed::FromDouble(lambda_.hi);
  wide->lambda += WideFixed::FromDouble(lambda_.lo);
  std::vector<double> residual;
  std::vector<double> delta;
  for (int step = 0; step < kMaxSteps; ++step) {
    const double sum_residual = WideResidual(*wide, &residual);
    // At most 2^-255 a product, doubled on totals that enter another one.
    const double columns = static_cast<double>(s + error_.size() + 4);
    const double entry_error = columns * 0x1.0p-253;
    const Radius radius = RadiusOf(std::abs(sum_residual) + entry_error,
                                   Norm(residual) + std::sqrt(copies_) * entry_error);
    if (radius.a <= 0x1.0p-200 && radius.lambda <= 0x1.0p-195) return true;
    double delta_lambda = 0.0;
    Correction(sum_residual, residual, &delta, &delta_lambda);
    for (size_t i = 0; i < s; ++i) wide->a[i] += WideFixed::FromDouble(delta[i]);
    wide->lambda += WideFixed::FromDouble(delta_lambda);
  }
  return false;
}

bool PartitionSystem::RoundTo(std::vector<double>* a, double* rho, bool* used_more_digits,
                              bool force_more_digits) {
  const size_t s = margin_.size();
  Wide wide;
  *used_more_digits = false;
  const auto need_wide = [&]() {
    if (*used_more_digits) return true;
    *used_more_digits = true;
    return RefineWide(&wide);
  };
  a->resize(s);
  for (size_t i = 0; i < s; ++i) {
    (*a)[i] = RoundToGrid(a_[i] - radius_);
    if ((*a)[i] == RoundToGrid(a_[i] + radius_) && !force_more_digits) continue;
    if (!need_wide()) return false;
    const Neighbours near = NeighboursOf(ToDoubleDouble(wide.a[i]));
    WideFixed twice = wide.a[i];
    twice += wide.a[i];
    (*a)[i] = AboveMiddle(twice, near) ? near.high : near.low;
  }
  const DoubleDouble value = -(lambda_ / mass_) + 1.0;
  const double radius = (lambda_radius_ / mass_ + (1.0 + lambda_.hi / mass_) * 0x1.0p-102) * kUp;
  *rho = RoundToGrid(value - radius);
  if (*rho == RoundToGrid(value + radius) && !force_more_digits) return true;
  if (!need_wide()) return false;
  const Neighbours near = NeighboursOf(-(ToDoubleDouble(wide.lambda) / mass_) + 1.0);
  // 2 rho > low + high if and only if m (low + high) < 2m - 2 lambda.
  WideFixed twice_mass_rho = WideFixed::FromDouble(2.0 * mass_);
  twice_mass_rho -= wide.lambda;
  twice_mass_rho -= wide.lambda;
  twice_mass_rho.AddProduct(-mass_, WideFixed::FromDouble(near.low));
  twice_mass_rho.AddProduct(-mass_, WideFixed::FromDouble(near.high));
  *rho = Tie() < twice_mass_rho ? near.high : near.low;
  return true;
}

}  // namespace lethe::svdd
