#include "paper/numpy_random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

namespace lethe::paper {
namespace {

// The layers of the ziggurat, computed as Marsaglia and Tsang do, in more digits than are kept.
class Ziggurat {
 public:
  static constexpr size_t kLayers = 256;
  static constexpr double kTail = 3.6541528853610088;  // where the tail begins

  static const Ziggurat& Get() {
    static const Ziggurat tables;
    return tables;
  }

  std::array<uint64_t, kLayers> inside;  // below this an abscissa is under the curve for sure
  std::array<double, kLayers> width;     // of a layer, over 2^52
  std::array<double, kLayers> height;    // the density at its edge

 private:
  static constexpr long double kScale = 4503599627370496.0L;  // 2^52

  static long double Density(long double x) { return std::exp(-0.5L * x * x); }

  Ziggurat() {
    const long double tail = 3.6541528853610087963519472518L;
    const long double half_pi = 1.57079632679489661923132169163975L;
    const long double area =
        tail * Density(tail) + std::sqrt(half_pi) * std::erfc(tail / std::sqrt(2.0L));
    long double edge = tail;
    const long double base = area / Density(tail);
    inside[0] = static_cast<uint64_t>(tail / base * kScale);
    inside[1] = 0;
    width[0] = static_cast<double>(base / kScale);
    height[0] = 1.0;
    Set(kLayers - 1, edge);
    for (size_t i = kLayers - 2; i >= 1; --i) {
      const long double outer = edge;
      edge = std::sqrt(-2.0L * std::log(area / outer + Density(outer)));
      inside[i + 1] = static_cast<uint64_t>(edge / outer * kScale);
      Set(i, edge);
    }
  }

  void Set(size_t layer, long double edge) {
    width[layer] = static_cast<double>(edge / kScale);
    height[layer] = static_cast<double>(Density(edge));
  }
};

// numpy.random.SeedSequence(seed).generate_state(4, uint64).
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    const std::array<uint32_t, 4> entropy = {static_cast<uint32_t>(seed),
                                             static_cast<uint32_t>(seed >> 32), 0, 0};
    uint32_t constant = 0x43b0d7e5;
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = Hash(entropy[i], &constant, 0x931e8875);
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from == to) continue;
        const uint32_t hashed = Hash(pool_[from], &constant, 0x931e8875);
        const uint32_t mixed = 0xca01f9dd * pool_[to] - 0x4973f715 * hashed;
        pool_[to] = mixed ^ (mixed >> 16);
      }
    }
  }

  std::array<uint64_t, 4> State() const {
    std::array<uint64_t, 4> state{};
    uint32_t constant = 0x8b51f9dd;
    for (size_t i = 0; i < 2 * state.size(); ++i) {
      const uint64_t word = Hash(pool_[i % pool_.size()], &constant, 0x58f38ded);
      state[i / 2] |= word << (32 * (i % 2));
    }
    return state;
  }

 private:
  static uint32_t Hash(uint32_t value, uint32_t* constant, uint32_t multiplier) {
    value ^= *constant;
    *constant *= multiplier;
    value *= *constant;
    return value ^ (value >> 16);
  }

  std::array<uint32_t, 4> pool_{};
};

// The high 64 bits of a product.
uint64_t HighProduct(uint64_t a, uint64_t b) {
  const uint64_t low_low = (a & 0xffffffff) * (b & 0xffffffff);
  const uint64_t high_low = (a >> 32) * (b & 0xffffffff);
  const uint64_t low_high = (a & 0xffffffff) * (b >> 32);
  const uint64_t middle = (low_low >> 32) + (high_low & 0xffffffff) + low_high;
  return (a >> 32) * (b >> 32) + (high_low >> 32) + (middle >> 32);
}

}  // namespace

double RandomState::Uniform() {
  const uint64_t a = engine_() >> 5;
  const uint64_t b = engine_() >> 6;
  return (static_cast<double>(a) * 67108864.0 + static_cast<double>(b)) / 9007199254740992.0;
}

double RandomState::Normal() {
  if (spare_.has_value()) return *std::exchange(spare_, std::nullopt);
  double x = 0.0;
  double y = 0.0;
  double square = 0.0;
  do {
    x = 2.0 * Uniform() - 1.0;
    y = 2.0 * Uniform() - 1.0;
    square = x * x + y * y;
  } while (square >= 1.0 || square == 0.0);
  const double factor = std::sqrt(-2.0 * std::log(square) / square);
  spare_ = factor * x;
  return factor * y;
}

std::vector<double> RandomState::Normals(int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = Normal();
  return values;
}

int64_t RandomState::Below(int64_t end) {
  const auto most = static_cast<uint64_t>(end - 1);
  if (most == 0) return 0;
  const uint64_t mask = ~uint64_t{0} >> std::countl_zero(most);
  while (true) {
    const uint64_t value = engine_() & mask;
    if (value <= most) return static_cast<int64_t>(value);
  }
}

std::vector<int64_t> RandomState::Permutation(int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[static_cast<size_t>(Below(static_cast<int64_t>(i) + 1))]);
  }
  return order;
}

std::vector<int64_t> RandomState::Choice(int64_t n, int64_t k) {
  std::vector<int64_t> chosen = Permutation(n);
  chosen.resize(static_cast<size_t>(k));
  return chosen;
}

DefaultRng::DefaultRng(uint64_t seed) {
  const std::array<uint64_t, 4> words = SeedSequence(seed).State();
  increment_ = {(words[2] << 1) | (words[3] >> 63), (words[3] << 1) | 1};
  Step();
  const uint64_t low = state_.low + words[1];
  state_.high += words[0] + (low < words[1] ? 1 : 0);
  state_.low = low;
  Step();
}

void DefaultRng::Step() {
  constexpr Wide kMultiplier = {2549297995355413924u, 4865540595714422341u};
  const uint64_t product = state_.low * kMultiplier.low;
  const uint64_t high = HighProduct(state_.low, kMultiplier.low) + state_.high * kMultiplier.low +
                        state_.low * kMultiplier.high;
  const uint64_t low = product + increment_.low;
  state_ = {high + increment_.high + (low < product ? 1 : 0), low};
}

uint64_t DefaultRng::Next64() {
  Step();
  return std::rotr(state_.high ^ state_.low, static_cast<int>(state_.high >> 58));
}

uint32_t DefaultRng::Next32() {
  if (spare_.has_value()) return *std::exchange(spare_, std::nullopt);
  const uint64_t both = Next64();
  spare_ = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

double DefaultRng::Uniform() {
  return static_cast<double>(Next64() >> 11) * (1.0 / 9007199254740992.0);
}

double DefaultRng::Normal() {
  const Ziggurat& ziggurat = Ziggurat::Get();
  while (true) {
    const uint64_t bits = Next64();
    const size_t layer = bits & 0xff;
    const uint64_t magnitude = (bits >> 9) & 0xfffffffffffff;
    double x = static_cast<double>(magnitude) * ziggurat.width[layer];
    if (((bits >> 8) & 1) != 0) x = -x;
    if (magnitude < ziggurat.inside[layer]) return x;
    if (layer == 0) {
      while (true) {
        const double beyond = -std::log1p(-Uniform()) / Ziggurat::kTail;
        const double y = -std::log1p(-Uniform());
        if (y + y > beyond * beyond) {
          const double tail = Ziggurat::kTail + beyond;
          return ((magnitude >> 8) & 1) != 0 ? -tail : tail;
        }
      }
    }
    const double outer = ziggurat.height[layer];
    if ((ziggurat.height[layer - 1] - outer) * Uniform() + outer < std::exp(-0.5 * x * x)) {
      return x;
    }
  }
}

std::vector<double> DefaultRng::Normals(int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = Normal();
  return values;
}

int64_t DefaultRng::Below(int64_t end) {
  const auto count = static_cast<uint64_t>(end);
  if (count == 1) return 0;
  uint64_t product = Next32() * count;
  const uint64_t unfair = (uint64_t{1} << 32) % count;
  while ((product & 0xffffffff) < unfair) product = Next32() * count;
  return static_cast<int64_t>(product >> 32);
}

std::vector<int64_t> DefaultRng::Choice(int64_t n, int64_t k) {
  std::vector<int64_t> chosen;
  for (int64_t last = n - k; last < n; ++last) {
    const int64_t drawn = Below(last + 1);
    const bool taken = std::find(chosen.begin(), chosen.end(), drawn) != chosen.end();
    chosen.push_back(taken ? last : drawn);
  }
  for (size_t i = chosen.size(); i-- > 1;) {
    std::swap(chosen[i], chosen[static_cast<size_t>(Below(static_cast<int64_t>(i) + 1))]);
  }
  return chosen;
}

}  // namespace lethe::paper
