#include "memory/palimpsa/palimpsa_tree.h"

#include <cstddef>
#include <vector>

#include "kernels/math/math.h"

namespace lethe {
namespace {

struct Contribution {
  float m;
  float i_bar;
  float decay;
};

Contribution Combine(const Contribution& a, const Contribution& b) {
  return {b.m + b.decay * a.m, b.i_bar + b.decay * a.i_bar, a.decay * b.decay};
}

Contribution CombineAll(absl::Span<const Contribution> items) {
  if (items.size() == 1) return items[0];
  const size_t middle = items.size() / 2;
  return Combine(CombineAll(items.first(middle)), CombineAll(items.subspan(middle)));
}

}  // namespace

void PalimpsaTree(const PalimpsaShape& shape, const PalimpsaInputs& inputs, int64_t count,
                  absl::Span<float> m, absl::Span<float> i_bar) {
  const auto num_heads = static_cast<size_t>(shape.num_heads);
  const auto key_dim = static_cast<size_t>(shape.key_dim);
  const auto value_dim = static_cast<size_t>(shape.value_dim);
  std::vector<Contribution> items(static_cast<size_t>(count));
  std::vector<float> decays(inputs.log_decay.size());
  Exp(inputs.log_decay, absl::MakeSpan(decays));
  for (size_t index = 0; index < m.size(); ++index) {
    const size_t head = index / (value_dim * key_dim);
    const size_t row = index / key_dim % value_dim;
    for (size_t t = 0; t < items.size(); ++t) {
      const size_t token_head = t * num_heads + head;
      const float k = inputs.k[token_head * key_dim + index % key_dim];
      const float b = i_bar.empty() ? 0.0f : inputs.precision[token_head * value_dim + row];
      items[t] = {inputs.value[token_head * value_dim + row] * k, b * (k * k), decays[token_head]};
    }
    const Contribution all = CombineAll(items);
    m[index] = all.m + all.decay * m[index];
    if (!i_bar.empty()) i_bar[index] = all.i_bar + all.decay * i_bar[index];
  }
}

}  // namespace lethe
