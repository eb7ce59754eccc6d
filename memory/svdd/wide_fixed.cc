#include "memory/svdd/wide_fixed.h"

#include <cmath>

#include "kernels/base/check.h"

namespace lethe::svdd {
namespace {

__extension__ using Uint128 = unsigned __int128;

struct Parts {
  uint64_t mantissa;  // 53 bits
  int exponent;       // |value| = mantissa * 2^exponent
  bool negative;
};

Parts Split(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);
  return {static_cast<uint64_t>(fraction * 0x1.0p53), exponent - 53, std::signbit(value)};
}

// limbs <- limbs * 2^shift, dropping bits off either end; limbs is an unsigned number.
template <size_t kCount>
void Shift(std::array<uint64_t, kCount>* limbs, int shift) {
  const bool left = shift >= 0;
  const size_t distance = static_cast<size_t>(left ? shift : -shift);
  const size_t words = distance / 64;
  const unsigned bits = static_cast<unsigned>(distance % 64);
  std::array<uint64_t, kCount> result{};
  for (size_t i = 0; i < kCount; ++i) {
    if (left && i >= words) {
      result[i] = (*limbs)[i - words] << bits;
      if (bits > 0 && i > words) result[i] |= (*limbs)[i - words - 1] >> (64 - bits);
    } else if (!left && i + words < kCount) {
      result[i] = (*limbs)[i + words] >> bits;
      if (bits > 0 && i + words + 1 < kCount) result[i] |= (*limbs)[i + words + 1] << (64 - bits);
    }
  }
  *limbs = result;
}

}  // namespace

WideFixed WideFixed::FromDouble(double value) {
  LETHE_DCHECK(std::abs(value) < 0x1.0p62);
  WideFixed result;
  if (value == 0.0) return result;
  const Parts parts = Split(value);
  result.limbs_[0] = parts.mantissa;
  Shift(&result.limbs_, parts.exponent + kFractionBits);
  return parts.negative ? -result : result;
}

WideFixed& WideFixed::operator+=(const WideFixed& other) {
  uint64_t carry = 0;
  for (size_t i = 0; i < kLimbs; ++i) {
    const Uint128 sum = static_cast<Uint128>(limbs_[i]) + other.limbs_[i] + carry;
    limbs_[i] = static_cast<uint64_t>(sum);
    carry = static_cast<uint64_t>(sum >> 64);
  }
  return *this;
}

WideFixed& WideFixed::operator-=(const WideFixed& other) { return *this += -other; }

WideFixed WideFixed::operator-() const {
  WideFixed result;
  uint64_t carry = 1;
  for (size_t i = 0; i < kLimbs; ++i) {
    const Uint128 sum = static_cast<Uint128>(~limbs_[i]) + carry;
    result.limbs_[i] = static_cast<uint64_t>(sum);
    carry = static_cast<uint64_t>(sum >> 64);
  }
  return result;
}

void WideFixed::AddProduct(double factor, const WideFixed& value) {
  if (factor == 0.0) return;
  const Parts parts = Split(factor);
  const WideFixed magnitude = value.negative() ? -value : value;
  std::array<uint64_t, kLimbs + 1> product{};
  uint64_t carry = 0;
  for (size_t i = 0; i < kLimbs; ++i) {
    const Uint128 term = static_cast<Uint128>(magnitude.limbs_[i]) * parts.mantissa + carry;
    product[i] = static_cast<uint64_t>(term);
    carry = static_cast<uint64_t>(term >> 64);
  }
  product[kLimbs] = carry;
  Shift(&product, parts.exponent);
  WideFixed rounded;
  for (size_t i = 0; i < kLimbs; ++i) rounded.limbs_[i] = product[i];
  if (parts.negative != value.negative()) {
    *this -= rounded;
  } else {
    *this += rounded;
  }
}

bool WideFixed::operator<(const WideFixed& other) const {
  WideFixed difference = *this;
  difference -= other;
  return difference.negative();
}

double WideFixed::ToDouble() const {
  const WideFixed magnitude = negative() ? -*this : *this;
  double value = 0.0;
  for (size_t i = 0; i < kLimbs; ++i) {
    value += std::ldexp(static_cast<double>(magnitude.limbs_[i]),
                        static_cast<int>(64 * i) - kFractionBits);
  }
  return negative() ? -value : value;
}

}  // namespace lethe::svdd
