// WideFixed: signed fixed-point numbers with 64 integer and 256 fraction bits, for the rare
// roundings that 106 bits cannot decide.
//
// Equation:  value = (the 320-bit two's complement integer) * 2^-256.
// Shapes:    five 64-bit limbs, least significant first.
// Units:     none.
// Requires:  magnitudes below 2^62 (LETHE_DCHECK in FromDouble).
// Rejects:   none.
// Effects:   none.
// Numerics:  addition exact; FromDouble and AddProduct drop what lies below 2^-256 (error below
//            2^-255 each); ToDouble within 2^-52 relative (2^-256 absolute).
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_WIDE_FIXED_H_
#define LETHE_MEMORY_SVDD_WIDE_FIXED_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace lethe::svdd {

class WideFixed {
 public:
  WideFixed() = default;
  static WideFixed FromDouble(double value);

  WideFixed& operator+=(const WideFixed& other);
  WideFixed& operator-=(const WideFixed& other);
  WideFixed operator-() const;
  // *this += factor * value.
  void AddProduct(double factor, const WideFixed& value);

  bool negative() const { return (limbs_[kLimbs - 1] >> 63) != 0; }
  bool operator<(const WideFixed& other) const;
  double ToDouble() const;

 private:
  static constexpr size_t kLimbs = 5;
  static constexpr int kFractionBits = 256;

  std::array<uint64_t, kLimbs> limbs_{};
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_WIDE_FIXED_H_
