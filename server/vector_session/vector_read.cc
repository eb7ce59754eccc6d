// VectorSession: Read.
#include <algorithm>
#include <cmath>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/gram/gram.h"
#include "kernels/math/math.h"
#include "server/vector_session/vector_session.h"

namespace lethe {
namespace {

struct OneRead {
  const SupportRows& support;
  double sigma = 1.0;
  double rho = 0.0;
  double mass = 1.0;
};

// t_i of the query, and its decision.
double Decide(const OneRead& read, absl::Span<const double> query, absl::Span<double> distances,
              absl::Span<double> weights) {
  ScaledDistances(query, read.support.keys(), read.sigma, distances);
  for (size_t i = 0; i < distances.size(); ++i) weights[i] = -distances[i];
  Exp(weights, weights);
  double sum = 0.0;
  for (size_t i = 0; i < weights.size(); ++i) {
    sum = std::fma(read.support.a()[i], weights[i], sum);
  }
  return read.rho - 1.0 + 2.0 * sum / read.mass;
}

void ReadOut(const OneRead& read, absl::Span<const double> distances, absl::Span<double> weights,
             absl::Span<double> readout) {
  const double nearest = *std::min_element(distances.begin(), distances.end());
  for (size_t i = 0; i < distances.size(); ++i) weights[i] = nearest - distances[i];
  Exp(weights, weights);
  double total = 0.0;
  std::fill(readout.begin(), readout.end(), 0.0);
  for (size_t i = 0; i < weights.size(); ++i) {
    const double weight = read.support.a()[i] * weights[i];
    total += weight;
    const double* value = read.support.values().data() + i * readout.size();
    for (size_t c = 0; c < readout.size(); ++c) readout[c] = std::fma(weight, value[c], readout[c]);
  }
  for (double& component : readout) component /= total;
}

}  // namespace

absl::StatusOr<VectorReads> VectorSession::Read(absl::Span<const double> queries) {
  LETHE_CHECK(!staged_);
  LETHE_RETURN_IF_ERROR(CheckVectorRows("queries", queries, options_.params.key_dim));
  if (num_tokens() == 0) {
    return absl::FailedPreconditionError("session_id: the session holds no keys to read");
  }
  const svdd::Solution& solution = solver_->solution();
  const auto key_dim = static_cast<size_t>(options_.params.key_dim);
  const auto value_dim = static_cast<size_t>(options_.value_dim);
  support_.Update(solution, inputs_, {keys_, values_, key_dim, value_dim});
  const OneRead read = {support_, options_.params.sigma, solution.rho, solution.mass};
  VectorReads reads;
  const size_t count = queries.size() / key_dim;
  reads.decisions.resize(count);
  reads.readouts.resize(count * value_dim);
  WipedVector<double> distances(support_.size());
  WipedVector<double> weights(support_.size());
  for (size_t i = 0; i < count; ++i) {
    reads.decisions[i] = Decide(read, queries.subspan(i * key_dim, key_dim),
                                absl::MakeSpan(distances), absl::MakeSpan(weights));
    if (value_dim == 0) continue;
    ReadOut(read, distances, absl::MakeSpan(weights),
            absl::MakeSpan(reads.readouts).subspan(i * value_dim, value_dim));
  }
  return reads;
}

}  // namespace lethe
