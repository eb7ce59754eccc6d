#include "paper/torch_random.h"

#include <cmath>
#include <utility>

namespace lethe::paper {
namespace {

constexpr double kTwoPi = 6.283185307179586476925286766559;
constexpr size_t kBlock = 16;

}  // namespace

double TorchRandom::Uniform() {
  const uint64_t high = engine_();
  const uint64_t low = engine_();
  return static_cast<double>(((high << 32) | low) & ((uint64_t{1} << 53) - 1)) * 0x1.0p-53;
}

double TorchRandom::Single() {
  if (spare_.has_value()) return *std::exchange(spare_, std::nullopt);
  const double angle = kTwoPi * Uniform();
  const double radius = std::sqrt(-2.0 * std::log1p(-Uniform()));
  spare_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

void TorchRandom::TransformBlock(double* block) {
  for (size_t i = 0; i < kBlock / 2; ++i) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - block[i]));
    const double angle = kTwoPi * block[i + kBlock / 2];
    block[i] = radius * std::cos(angle);
    block[i + kBlock / 2] = radius * std::sin(angle);
  }
}

std::vector<double> TorchRandom::Normals(int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  if (values.size() < kBlock) {
    for (double& value : values) value = Single();
    return values;
  }
  for (double& value : values) value = Uniform();
  for (size_t i = 0; i + kBlock <= values.size(); i += kBlock) TransformBlock(values.data() + i);
  if (values.size() % kBlock != 0) {
    double* const last = values.data() + values.size() - kBlock;
    for (size_t i = 0; i < kBlock; ++i) last[i] = Uniform();
    TransformBlock(last);
  }
  return values;
}

}  // namespace lethe::paper
