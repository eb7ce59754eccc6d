// What the tests of VLA's chunks feed and compare: random tokens, parts of them, states.
// Threads: compatible.
#ifndef LETHE_TESTS_KERNELS_VLA_CHUNK_INPUTS_H_
#define LETHE_TESTS_KERNELS_VLA_CHUNK_INPUTS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/casts.h"

#include "kernels/vla/vla.h"
#include "tests/kernels/stream_inputs.h"

namespace lethe::testing {

inline VlaOptions Options(VlaVariant variant, int64_t dim, int64_t num_heads = 2) {
  VlaOptions options;
  options.num_heads = num_heads;
  options.key_dim = options.value_dim = dim;
  options.variant = variant;
  return options;
}

struct Tokens {
  std::vector<float> q, k, v, u;
};

inline Tokens RandomTokens(const VlaOptions& options, int64_t count, uint64_t seed) {
  RandomSource random(seed);
  const int64_t rows = count * options.num_heads;
  Tokens tokens{random.EluPlusOnes(rows * options.key_dim),
                random.EluPlusOnes(rows * options.key_dim),
                random.Normals(rows * options.value_dim),
                random.Rows(rows, options.key_dim, 1.0 / std::sqrt(options.key_dim))};
  if (options.variant == VlaVariant::kRls) tokens.u.clear();
  return tokens;
}

inline void Append(const std::vector<float>& x, int64_t begin, int64_t size,
                   std::vector<float>* y) {
  y->insert(y->end(), x.begin() + begin, x.begin() + begin + size);
}

// One sequence's share of a call: tokens first … first + count - 1 of `tokens`, into a slot.
struct Part {
  const Tokens* tokens;
  int64_t first;
  int64_t count;
  int32_t slot;
};

struct State {
  std::vector<float> gram, s, a;
};

inline bool SameBits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), [](float a, float b) {
           return absl::bit_cast<uint32_t>(a) == absl::bit_cast<uint32_t>(b);
         });
}

inline bool operator==(const State& a, const State& b) {
  return SameBits(a.gram, b.gram) && SameBits(a.s, b.s) && SameBits(a.a, b.a);
}

template <typename A, typename B>
double RelativeError(const A& is, const B& should) {
  double error = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < should.size(); ++i) {
    const double difference = static_cast<double>(is[i]) - static_cast<double>(should[i]);
    error += difference * difference;
    norm += static_cast<double>(should[i]) * static_cast<double>(should[i]);
  }
  return std::sqrt(error / norm);
}

}  // namespace lethe::testing

#endif  // LETHE_TESTS_KERNELS_VLA_CHUNK_INPUTS_H_
