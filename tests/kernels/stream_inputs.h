// RandomSource and small vector helpers for the tests of the streaming memories.
// Threads: compatible.
#ifndef LETHE_TESTS_KERNELS_STREAM_INPUTS_H_
#define LETHE_TESTS_KERNELS_STREAM_INPUTS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/types/span.h"

namespace lethe::testing {

class RandomSource {
 public:
  explicit RandomSource(uint64_t seed) : engine_(seed) {}

  float Normal() { return normal_(engine_); }
  float Uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(engine_);
  }
  int64_t Integer(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  std::vector<float> Normals(int64_t size, float scale = 1.0f) {
    std::vector<float> x(static_cast<size_t>(size));
    for (float& element : x) element = scale * Normal();
    return x;
  }
  std::vector<float> Uniforms(int64_t size, float low, float high) {
    std::vector<float> x(static_cast<size_t>(size));
    for (float& element : x) element = Uniform(low, high);
    return x;
  }
  // elu(normal) + 1: what VLA gets for q and k.
  std::vector<float> EluPlusOnes(int64_t size) {
    std::vector<float> x = Normals(size);
    for (float& element : x) element = element > 0 ? element + 1 : std::exp(element);
    return x;
  }
  // Rows of the given length, each scaled to the given norm.
  std::vector<float> Rows(int64_t num_rows, int64_t length, double norm) {
    std::vector<float> x = Normals(num_rows * length);
    for (size_t row = 0; row < static_cast<size_t>(num_rows); ++row) {
      float* first = x.data() + row * static_cast<size_t>(length);
      double squares = 0;
      for (int64_t j = 0; j < length; ++j) squares += double{first[j]} * double{first[j]};
      for (int64_t j = 0; j < length; ++j) {
        first[j] = static_cast<float>(first[j] * norm / std::sqrt(squares));
      }
    }
    return x;
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<float> normal_;
};

inline std::vector<double> ToDouble(absl::Span<const float> x) { return {x.begin(), x.end()}; }

template <typename A, typename B>
double MaxAbsDifference(const A& a, const B& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
  }
  return largest;
}

template <typename A>
double MaxAbs(const A& a) {
  double largest = 0.0;
  for (auto element : a) largest = std::max(largest, std::abs(static_cast<double>(element)));
  return largest;
}

}  // namespace lethe::testing

#endif  // LETHE_TESTS_KERNELS_STREAM_INPUTS_H_
