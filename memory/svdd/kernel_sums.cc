#include "memory/svdd/kernel_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "hwy/highway.h"

#include "kernels/base/check.h"

namespace lethe::svdd {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::FixedTag<double, 4>;
using I = hn::FixedTag<int64_t, 4>;
constexpr size_t kLanes = 4;

constexpr int kScaleMax = 48;
constexpr int kTermBits = 50;         // of a term, one less than kToInteger leaves
constexpr double kWholeMass = 16384;  // times 2^kScaleMax fits an int64 with room for 2 M
// Added to |x| <= 2^51 it leaves x, rounded to an integer, in the low bits.
constexpr double kToInteger = 0x1.8p52;

int64_t Term(double k, double scaled_total) {
  return std::bit_cast<int64_t>(std::fma(k, scaled_total, kToInteger)) -
         std::bit_cast<int64_t>(kToInteger);
}

// sums += (term(after) - term(before)) 2^shift.
void AddDifferences(absl::Span<const double> row, double before, double after, int shift,
                    int64_t* sums) {
  const D d;
  const I di;
  const auto from = hn::Set(d, before);
  const auto to = hn::Set(d, after);
  const auto magic = hn::Set(d, kToInteger);
  size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    const auto k = hn::LoadU(d, row.data() + i);
    const auto plus = hn::BitCast(di, hn::MulAdd(k, to, magic));
    const auto minus = hn::BitCast(di, hn::MulAdd(k, from, magic));
    const auto change = hn::ShiftLeftSame(hn::Sub(plus, minus), shift);
    hn::StoreU(hn::Add(hn::LoadU(di, sums + i), change), di, sums + i);
  }
  for (; i < row.size(); ++i) {
    const auto change = static_cast<uint64_t>(Term(row[i], after) - Term(row[i], before)) << shift;
    sums[i] = static_cast<int64_t>(static_cast<uint64_t>(sums[i]) + change);
  }
}

}  // namespace

KernelSums::KernelSums(double box_mass) : scale_(kScaleMax) {
  while (box_mass > std::ldexp(kWholeMass, kScaleMax - scale_)) --scale_;
  unit_ = std::ldexp(1.0, -scale_);
}

int KernelSums::Bits(double total) const {
  int exponent = 0;
  std::frexp(total, &exponent);  // total < 2^exponent
  return std::min(scale_, kTermBits - exponent);
}

void KernelSums::Change(absl::Span<const double> row, double before, double after, size_t begin) {
  LETHE_CHECK(begin + row.size() <= sums_.size());
  int64_t* sums = sums_.data() + begin;
  const int bits_before = Bits(before);
  const int bits_after = Bits(after);
  if (bits_before == bits_after) {
    AddDifferences(row, std::ldexp(before, bits_after), std::ldexp(after, bits_after),
                   scale_ - bits_after, sums);
    return;
  }
  AddDifferences(row, std::ldexp(before, bits_before), 0.0, scale_ - bits_before, sums);
  AddDifferences(row, 0.0, std::ldexp(after, bits_after), scale_ - bits_after, sums);
}

void KernelSums::Append(absl::Span<const double> column, absl::Span<const double> totals) {
  LETHE_CHECK(column.size() == totals.size());
  uint64_t sum = 0;
  for (size_t j = 0; j < column.size(); ++j) {
    const int bits = Bits(totals[j]);
    sum += static_cast<uint64_t>(Term(column[j], std::ldexp(totals[j], bits))) << (scale_ - bits);
  }
  sums_.push_back(static_cast<int64_t>(sum));
}

void KernelSums::Reorder(absl::Span<const int64_t> from) {
  std::vector<int64_t> sums;
  sums.reserve(from.size());
  for (const int64_t i : from) sums.push_back(sums_[static_cast<size_t>(i)]);
  sums_ = std::move(sums);
}

double KernelSums::Error(absl::Span<const double> totals) const {
  double error = 0.0;
  double sum = 0.0;
  for (const double total : totals) {
    error += std::ldexp(0.5, -Bits(total));
    sum += total;
  }
  return 1.001 * (error + 0x1.0p-52 * sum);  // the second: of the integer's rounding to a double
}

}  // namespace lethe::svdd
