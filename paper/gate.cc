#include "paper/gate.h"

#include <algorithm>
#include <cmath>

#include "audit/crypto/encoding.h"
#include "audit/crypto/sha256.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"
#include "kernels/gram/gram.h"
#include "memory/svdd/canonical.h"
#include "memory/svdd/svdd_ref.h"

namespace lethe::paper {
namespace {

constexpr double kDecay = 0.01;
constexpr double kMarginTolerance = 1e-6;  // the paper's, of alpha

// alpha_i kappa(query, x_i) for the keys with alpha > 0, whose ranks are `support`.
class Weights {
 public:
  explicit Weights(const Gate& gate) : gate_(gate) {
    for (size_t i = 0; i < gate.alpha.size(); ++i) {
      if (gate.alpha[i] > 0.0) support_.push_back(static_cast<int64_t>(i));
    }
    keys_ = gate.keys.At(support_);
    weights_.resize(support_.size());
  }

  const std::vector<double>& Of(absl::Span<const double> query) {
    GramRow(query, keys_.x, gate_.sigma, absl::MakeSpan(weights_));
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] *= gate_.alpha[static_cast<size_t>(support_[i])];
    }
    return weights_;
  }
  const std::vector<int64_t>& support() const { return support_; }

 private:
  const Gate& gate_;
  Points keys_;
  std::vector<int64_t> support_;
  std::vector<double> weights_;
};

double Sum(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum;
}

}  // namespace

Gate MakeGate(const svdd::Params& params, const Points& keys, const svdd::Solution& solution) {
  Gate gate{params.sigma, keys, solution.a, solution.rho};
  for (double& alpha : gate.alpha) alpha /= solution.mass;
  return gate;
}

absl::StatusOr<Gate> SolveGate(const svdd::Params& params, const Points& keys) {
  LETHE_ASSIGN_OR_RETURN(const svdd::Solution solution, svdd::SolveCanonical(params, keys.x));
  return MakeGate(params, keys, solution);
}

absl::StatusOr<Gate> SolveWithoutRidge(const svdd::Params& params, const Points& keys) {
  svdd::Params without = params;
  without.ridge = 0.0;
  const svdd::RefSolution solution = svdd::SolveRef(without, keys.x);
  if (!solution.converged) {
    return absl::FailedPreconditionError("the reference without a ridge did not converge");
  }
  Gate gate{params.sigma, keys, {}, static_cast<double>(solution.rho)};
  for (const long double a : solution.a)
    gate.alpha.push_back(static_cast<double>(a / solution.mass));
  return gate;
}

Gate DecayedGate(const Gate& gate, double box_c, absl::Span<const int64_t> ranks) {
  Gate decayed = gate;
  for (const int64_t rank : ranks) decayed.alpha[static_cast<size_t>(rank)] *= kDecay;
  Weights weights(decayed);
  double sum = 0.0;
  int64_t count = 0;
  double nearest = 0.0;
  double nearest_distance = box_c;
  for (int64_t i = 0; i < decayed.keys.count(); ++i) {
    const double alpha = decayed.alpha[static_cast<size_t>(i)];
    const double offset = 1.0 - 2.0 * Sum(weights.Of(decayed.keys.row(i)));
    if (alpha > kMarginTolerance && alpha < box_c - kMarginTolerance) {
      sum += offset;
      ++count;
    }
    if (std::abs(alpha - box_c / 2.0) < nearest_distance) {
      nearest_distance = std::abs(alpha - box_c / 2.0);
      nearest = offset;
    }
  }
  decayed.rho = count > 0 ? sum / static_cast<double>(count) : nearest;
  return decayed;
}

Gate UniformGate(double sigma, const Points& keys, absl::Span<const int64_t> ranks) {
  Gate gate{sigma, keys, std::vector<double>(static_cast<size_t>(keys.count()), 0.0), 0.0};
  for (const int64_t rank : ranks) gate.alpha[static_cast<size_t>(rank)] = 1.0;
  return gate;
}

std::vector<int64_t> SupportRanks(const svdd::Solution& solution) {
  std::vector<int64_t> ranks;
  for (size_t i = 0; i < solution.classes.size(); ++i) {
    if (solution.classes[i] != svdd::Partition::kReserve) ranks.push_back(static_cast<int64_t>(i));
  }
  return ranks;
}

std::vector<double> Scores(const Gate& gate, const Points& queries) {
  Weights weights(gate);
  std::vector<double> scores;
  for (int64_t i = 0; i < queries.count(); ++i) {
    scores.push_back(2.0 * Sum(weights.Of(queries.row(i))) - gate.rho);
  }
  return scores;
}

std::vector<double> Readouts(const Gate& gate, absl::Span<const double> values, int64_t value_dim,
                             const Points& queries) {
  Weights weights(gate);
  const auto width = static_cast<size_t>(value_dim);
  std::vector<double> readouts(static_cast<size_t>(queries.count()) * width, 0.0);
  for (int64_t i = 0; i < queries.count(); ++i) {
    const std::vector<double>& of_query = weights.Of(queries.row(i));
    const double total = Sum(of_query);
    double* const out = readouts.data() + static_cast<size_t>(i) * width;
    for (size_t j = 0; j < of_query.size(); ++j) {
      const double* const value = values.data() + static_cast<size_t>(weights.support()[j]) * width;
      for (size_t c = 0; c < width; ++c) out[c] += of_query[j] / total * value[c];
    }
  }
  return readouts;
}

double LargestDifference(absl::Span<const double> a, absl::Span<const double> b) {
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

std::string SolutionDigest(const svdd::Solution& solution, absl::Span<const double> keys) {
  ByteWriter bytes;
  bytes.I64(solution.num_keys);
  bytes.F64(solution.mass);
  bytes.F64(solution.rho);
  for (const svdd::Partition place : solution.classes) bytes.U64(static_cast<uint64_t>(place));
  bytes.Array(absl::MakeConstSpan(solution.a));
  bytes.U64(solution.ambiguous ? 1 : 0);
  bytes.Array(keys);
  return audit::HexEncode(audit::Sha256Of(bytes.bytes()));
}

}  // namespace lethe::paper
