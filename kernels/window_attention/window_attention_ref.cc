#include <algorithm>
#include <cmath>

#include "kernels/base/check.h"
#include "kernels/window_attention/window_attention.h"

namespace lethe {

void WindowAttentionRef(const WindowAttentionShape& shape, absl::Span<const float> slopes,
                        absl::Span<const float> q, absl::Span<const float> k,
                        absl::Span<const float> v, absl::Span<double> o) {
  const int64_t num_heads = shape.num_heads;
  const int64_t count = static_cast<int64_t>(q.size()) / (num_heads * shape.key_dim);
  LETHE_CHECK(v.size() == static_cast<size_t>(count * num_heads * shape.value_dim));
  LETHE_CHECK(o.size() == v.size());
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t head = 0; head < num_heads; ++head) {
      const int64_t num_keys = std::min(shape.window, t + 1);
      std::vector<double> scores;
      for (int64_t j = 0; j < num_keys; ++j) {
        double dot = 0.0;
        for (int64_t i = 0; i < shape.key_dim; ++i) {
          dot += static_cast<double>(
                     q[static_cast<size_t>((t * num_heads + head) * shape.key_dim + i)]) *
                 static_cast<double>(
                     k[static_cast<size_t>(((t - j) * num_heads + head) * shape.key_dim + i)]);
        }
        scores.push_back(dot / std::sqrt(static_cast<double>(shape.key_dim)) -
                         static_cast<double>(slopes[static_cast<size_t>(head)]) *
                             static_cast<double>(j));
      }
      const double largest = *std::max_element(scores.begin(), scores.end());
      double total = 0.0;
      for (double& score : scores) total += score = std::exp(score - largest);
      for (int64_t c = 0; c < shape.value_dim; ++c) {
        double sum = 0.0;
        for (int64_t j = 0; j < num_keys; ++j) {
          sum += scores[static_cast<size_t>(j)] *
                 static_cast<double>(
                     v[static_cast<size_t>(((t - j) * num_heads + head) * shape.value_dim + c)]);
        }
        o[static_cast<size_t>((t * num_heads + head) * shape.value_dim + c)] = sum / total;
      }
    }
  }
}

}  // namespace lethe
