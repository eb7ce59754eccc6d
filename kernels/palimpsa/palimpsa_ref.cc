#include "kernels/palimpsa/palimpsa_ref.h"

#include <cmath>
#include <cstddef>
#include <functional>

#include "kernels/base/check.h"

namespace lethe {
namespace {

// One token's indices into the flattened inputs; T, H, K, V as in palimpsa.h.
struct Indexer {
  PalimpsaShape shape;
  size_t Key(int64_t t, int64_t h, int64_t j) const {
    return static_cast<size_t>((t * shape.num_heads + h) * shape.key_dim + j);
  }
  size_t Value(int64_t t, int64_t h, int64_t i) const {
    return static_cast<size_t>((t * shape.num_heads + h) * shape.value_dim + i);
  }
  size_t Head(int64_t t, int64_t h) const { return static_cast<size_t>(t * shape.num_heads + h); }
  size_t State(int64_t h, int64_t i, int64_t j) const {
    return static_cast<size_t>((h * shape.value_dim + i) * shape.key_dim + j);
  }
};

double Write(const PalimpsaRefOptions& options, const PalimpsaRefInputs& inputs, size_t index) {
  const double value = inputs.value[index];
  return options.numerator == PalimpsaNumerator::kBayes ? inputs.precision[index] * value : value;
}

PalimpsaRefResult MakeResult(const PalimpsaShape& shape, int64_t count) {
  const auto state = static_cast<size_t>(shape.num_heads * shape.value_dim * shape.key_dim);
  const auto reads = static_cast<size_t>(count * shape.num_heads * shape.value_dim);
  return {std::vector<double>(state), std::vector<double>(state), std::vector<double>(reads),
          std::vector<double>(reads)};
}

void CheckSizes(const PalimpsaShape& shape, const PalimpsaRefInputs& inputs, int64_t count) {
  const auto heads = static_cast<size_t>(count * shape.num_heads);
  LETHE_CHECK(inputs.q.size() == heads * static_cast<size_t>(shape.key_dim));
  LETHE_CHECK(inputs.k.size() == inputs.q.size());
  LETHE_CHECK(inputs.value.size() == heads * static_cast<size_t>(shape.value_dim));
  LETHE_CHECK(inputs.precision.size() == inputs.value.size());
  LETHE_CHECK(inputs.log_decay.size() == heads);
}

using ForElement = std::function<void(int64_t h, int64_t i, int64_t j)>;

void ForEachElement(const PalimpsaShape& shape, const ForElement& visit) {
  for (int64_t h = 0; h < shape.num_heads; ++h) {
    for (int64_t i = 0; i < shape.value_dim; ++i) {
      for (int64_t j = 0; j < shape.key_dim; ++j) visit(h, i, j);
    }
  }
}

// Adds one element's share of token t's read and variance, given mu and the full precision.
void AddRead(const PalimpsaRefOptions& options, const PalimpsaRefInputs& inputs, const Indexer& at,
             int64_t t, int64_t h, int64_t i, int64_t j, double mu, double precision,
             PalimpsaRefResult* result) {
  const double q = inputs.q[at.Key(t, h, j)];
  const double s = options.read_scale;
  result->out[at.Value(t, h, i)] += s * mu * q;
  result->variance[at.Value(t, h, i)] += s * s * q * q / precision;
}

// One token's contribution to one state element, or the composition of several tokens'.
struct Contribution {
  double m;
  double i_bar;
  double decay;
};

Contribution Combine(const Contribution& a, const Contribution& b) {
  return {b.m + b.decay * a.m, b.i_bar + b.decay * a.i_bar, a.decay * b.decay};
}

// Inclusive prefix compositions by recursive halving: the tree of the paper's associative scan.
void Scan(std::vector<Contribution>* items, size_t begin, size_t end) {
  if (end - begin < 2) return;
  const size_t middle = begin + (end - begin) / 2;
  Scan(items, begin, middle);
  Scan(items, middle, end);
  const Contribution left = (*items)[middle - 1];
  for (size_t t = middle; t < end; ++t) (*items)[t] = Combine(left, (*items)[t]);
}

}  // namespace

PalimpsaRefResult PalimpsaRefRecurrent(const PalimpsaRefOptions& options,
                                       const PalimpsaRefInputs& inputs, int64_t count) {
  CheckSizes(options.shape, inputs, count);
  const Indexer at{options.shape};
  PalimpsaRefResult result = MakeResult(options.shape, count);
  for (int64_t t = 0; t < count; ++t) {
    ForEachElement(options.shape, [&](int64_t h, int64_t i, int64_t j) {
      const double decay = std::exp(inputs.log_decay[at.Head(t, h)]);
      const double k = inputs.k[at.Key(t, h, j)];
      double& m = result.m[at.State(h, i, j)];
      double& i_bar = result.i_bar[at.State(h, i, j)];
      m = decay * m + Write(options, inputs, at.Value(t, h, i)) * k;
      i_bar = decay * i_bar + inputs.precision[at.Value(t, h, i)] * k * k;
      AddRead(options, inputs, at, t, h, i, j, m / (i_bar + 1.0), i_bar + 1.0, &result);
    });
  }
  return result;
}

PalimpsaRefResult PalimpsaRefScan(const PalimpsaRefOptions& options,
                                  const PalimpsaRefInputs& inputs, int64_t count) {
  CheckSizes(options.shape, inputs, count);
  const Indexer at{options.shape};
  PalimpsaRefResult result = MakeResult(options.shape, count);
  ForEachElement(options.shape, [&](int64_t h, int64_t i, int64_t j) {
    std::vector<Contribution> items;
    for (int64_t t = 0; t < count; ++t) {
      const double k = inputs.k[at.Key(t, h, j)];
      items.push_back({Write(options, inputs, at.Value(t, h, i)) * k,
                       inputs.precision[at.Value(t, h, i)] * k * k,
                       std::exp(inputs.log_decay[at.Head(t, h)])});
    }
    Scan(&items, 0, items.size());
    for (int64_t t = 0; t < count; ++t) {
      const Contribution& prefix = items[static_cast<size_t>(t)];
      AddRead(options, inputs, at, t, h, i, j, prefix.m / (prefix.i_bar + 1.0), prefix.i_bar + 1.0,
              &result);
      result.m[at.State(h, i, j)] = prefix.m;
      result.i_bar[at.State(h, i, j)] = prefix.i_bar;
    }
  });
  return result;
}

PalimpsaRefResult PalimpsaRefPosterior(const PalimpsaRefOptions& options,
                                       const PalimpsaRefInputs& inputs, int64_t count) {
  CheckSizes(options.shape, inputs, count);
  const Indexer at{options.shape};
  PalimpsaRefResult result = MakeResult(options.shape, count);
  ForEachElement(options.shape, [&](int64_t h, int64_t i, int64_t j) {
    constexpr double kPriorPrecision = 1.0;
    double mu = 0.0;
    double precision = kPriorPrecision;
    for (int64_t t = 0; t < count; ++t) {
      const double decay = std::exp(inputs.log_decay[at.Head(t, h)]);
      const double k = inputs.k[at.Key(t, h, j)];
      const double old = precision;
      precision = decay * old + (1.0 - decay) * kPriorPrecision +
                  inputs.precision[at.Value(t, h, i)] * k * k;
      mu = decay * old / precision * mu + Write(options, inputs, at.Value(t, h, i)) * k / precision;
      AddRead(options, inputs, at, t, h, i, j, mu, precision, &result);
    }
    result.m[at.State(h, i, j)] = mu * precision;
    result.i_bar[at.State(h, i, j)] = precision - kPriorPrecision;
  });
  return result;
}

}  // namespace lethe
