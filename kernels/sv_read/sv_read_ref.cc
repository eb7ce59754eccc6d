#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/sv_read/sv_read.h"

namespace lethe {

void SvReadRef(float scale, absl::Span<const float> q, const SvReadRows& rows,
               absl::Span<double> o) {
  const size_t num_support = rows.support.gates.size();
  const size_t num_rows = num_support + rows.local_keys.size() / q.size();
  std::vector<double> logits;
  for (size_t i = 0; i < num_rows; ++i) {
    const float* key = i < num_support ? rows.support.keys.data() +
                                             static_cast<size_t>(rows.support.key_of[i]) * q.size()
                                       : rows.local_keys.data() + (i - num_support) * q.size();
    double dot = 0.0;
    for (size_t j = 0; j < q.size(); ++j) dot += static_cast<double>(q[j]) * key[j];
    logits.push_back(scale * dot);
  }
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::fill(o.begin(), o.end(), 0.0);
  double total = 0.0;
  for (size_t i = 0; i < num_rows; ++i) {
    const bool is_gated = i < num_support;
    const double weight = std::exp(logits[i] - largest) * (is_gated ? rows.support.gates[i] : 1.0f);
    const float* value = is_gated ? rows.support.values.data() + i * o.size()
                                  : rows.local_values.data() + (i - num_support) * o.size();
    for (size_t c = 0; c < o.size(); ++c) o[c] += weight * value[c];
    total += weight;
  }
  for (double& x : o) x /= total;
}

}  // namespace lethe
