#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/math/math.h"
#include "kernels/sv_read/sv_read.h"

namespace lethe {

void SvRead(float scale, absl::Span<const float> q, const SvReadRows& rows,
            SvReadWorkspace* workspace, absl::Span<float> o) {
  const size_t key_dim = q.size();
  const size_t value_dim = o.size();
  const size_t num_distinct = rows.support.keys.size() / key_dim;
  const size_t num_support = rows.support.gates.size();
  const size_t num_local = rows.local_keys.size() / key_dim;
  LETHE_CHECK(rows.support.key_of.size() == num_support &&
              rows.support.values.size() == num_support * value_dim);
  LETHE_CHECK(num_local >= 1 && rows.local_values.size() == num_local * value_dim);
  std::vector<float>& logits = workspace->logits;
  logits.resize(num_distinct + num_local);
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits.size(); ++i) {
    const absl::Span<const float> key =
        i < num_distinct ? rows.support.keys.subspan(i * key_dim, key_dim)
                         : rows.local_keys.subspan((i - num_distinct) * key_dim, key_dim);
    logits[i] = scale * Dot(q, key);
    largest = std::max(largest, logits[i]);
  }
  for (float& logit : logits) logit -= largest;
  Exp(absl::MakeConstSpan(logits), absl::MakeSpan(logits));
  std::vector<float>& weights = workspace->weights;
  weights.resize(num_support + num_local);
  for (size_t i = 0; i < num_support; ++i) {
    weights[i] = logits[static_cast<size_t>(rows.support.key_of[i])] * rows.support.gates[i];
  }
  std::copy(logits.begin() + static_cast<std::ptrdiff_t>(num_distinct), logits.end(),
            weights.begin() + static_cast<std::ptrdiff_t>(num_support));
  std::fill(o.begin(), o.end(), 0.0f);
  for (size_t i = 0; i < weights.size(); ++i) {
    const float weight = weights[i];
    const float* value = i < num_support ? rows.support.values.data() + i * value_dim
                                         : rows.local_values.data() + (i - num_support) * value_dim;
    for (size_t c = 0; c < value_dim; ++c) o[c] = std::fma(weight, value[c], o[c]);
  }
  const float total = Sum(weights);
  for (float& x : o) x /= total;
}

}  // namespace lethe
