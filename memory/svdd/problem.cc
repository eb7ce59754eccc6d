#include "memory/svdd/problem.h"

#include <bit>
#include <cmath>
#include <cstddef>

#include "absl/status/status.h"

namespace lethe::svdd {
namespace {

constexpr double kLargestKey = 0x1.0p400;

// M within 1e-9 M of an integer is that integer: 1/C = 10(1 + 2^-52) would make every empty-margin
// problem nearly degenerate.
double SnapMass(double box_mass) {
  const double nearest = std::nearbyint(box_mass);
  return std::abs(box_mass - nearest) <= 1e-9 * box_mass ? nearest : box_mass;
}

}  // namespace

absl::StatusOr<Params> MakeParams(double sigma, double box_mass, double ridge, int64_t key_dim) {
  // Written so that NaN fails.
  if (!(sigma >= 0x1.0p-20 && sigma <= 0x1.0p20)) {
    return absl::InvalidArgumentError("sigma is outside 2^-20..2^20");
  }
  if (!(box_mass >= 1.0 && box_mass <= 0x1.0p20)) {
    return absl::InvalidArgumentError("box_mass is outside 1..2^20");
  }
  if (!(ridge >= 1e-8 && ridge <= 1.0)) {
    return absl::InvalidArgumentError("ridge is outside 1e-8..1");
  }
  if (key_dim < 1 || key_dim > 65536) {
    return absl::InvalidArgumentError("key_dim is outside 1..65536");
  }
  return Params{sigma, SnapMass(box_mass), ridge, key_dim};
}

absl::Status CheckKeys(const Params& params, absl::Span<const double> keys) {
  if (params.key_dim < 1 || keys.size() % static_cast<size_t>(params.key_dim) != 0) {
    return absl::InvalidArgumentError("keys: size is no multiple of key_dim");
  }
  bool within = true;
  for (const double component : keys) within &= std::abs(component) <= kLargestKey;
  if (!within) return absl::InvalidArgumentError("keys: a component is not finite or above 2^400");
  return absl::OkStatus();
}

double Mass(const Params& params, int64_t num_keys) {
  const double n = static_cast<double>(num_keys);
  return n <= params.box_mass ? n : params.box_mass;
}

bool SameBits(const Solution& a, const Solution& b) {
  const auto same = [](double x, double y) {
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  };
  if (a.num_keys != b.num_keys || !same(a.mass, b.mass) || !same(a.rho, b.rho) ||
      a.classes != b.classes || a.a.size() != b.a.size() || a.ambiguous != b.ambiguous) {
    return false;
  }
  for (size_t i = 0; i < a.a.size(); ++i) {
    if (!same(a.a[i], b.a[i])) return false;
  }
  return true;
}

}  // namespace lethe::svdd
