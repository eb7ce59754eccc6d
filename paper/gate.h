// Gate, Scores, Readouts, DecayedGate: a solved support-vector gate as the paper reads it.
//
// Equation:  alpha_i = a_i / m of problem.h. Score f(x) = 2 sum alpha_i kappa(x, x_i) - rho, the
//            paper's "implementation score" (not 0 on the margin, so that numbers compare). Readout
//            o(q) = sum alpha_i kappa(q, x_i) v_i / sum alpha_i kappa(q, x_i). Decay: the forgotten
//            keys stay, their alpha times 0.01, nothing is solved again; rho = mean of 1 - 2 (K
//            alpha)_i over 1e-6 < alpha_i < C - 1e-6, with none of these that of the alpha nearest
//            C/2 (the paper's baseline).
// Shapes:    values: [keys][value_dim]; Scores: [queries]; Readouts: [queries][value_dim].
// Units:     none.
// Requires:  sizes that match; queries of the keys' dimension.
// Rejects:   Solve: as MakeParams and SolveCanonical.
// Effects:   none.
// Numerics:  the kernel values are those of kernels/gram; sums run in rank order over the keys with
//            alpha > 0.
// Threads:   safe.
#ifndef LETHE_PAPER_GATE_H_
#define LETHE_PAPER_GATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "memory/svdd/problem.h"
#include "paper/points.h"

namespace lethe::paper {

struct Gate {
  double sigma = 1.0;
  Points keys;
  std::vector<double> alpha;  // [keys]
  double rho = 0.0;
};

Gate MakeGate(const svdd::Params& params, const Points& keys, const svdd::Solution& solution);
// The canonical gate of the keys, from scratch.
absl::StatusOr<Gate> SolveGate(const svdd::Params& params, const Points& keys);
// The same with ridge 0, the paper's problem, by the plain reference in long double.
// FAILED_PRECONDITION when that does not converge.
absl::StatusOr<Gate> SolveWithoutRidge(const svdd::Params& params, const Points& keys);
// `gate` after the decay of the keys at `ranks`.
Gate DecayedGate(const Gate& gate, double box_c, absl::Span<const int64_t> ranks);
// alpha = 1 on the selected ranks: attention without a gate.
Gate UniformGate(double sigma, const Points& keys, absl::Span<const int64_t> ranks);

std::vector<int64_t> SupportRanks(const svdd::Solution& solution);

std::vector<double> Scores(const Gate& gate, const Points& queries);
std::vector<double> Readouts(const Gate& gate, absl::Span<const double> values, int64_t value_dim,
                             const Points& queries);
// The largest |a_i - b_i|.
double LargestDifference(absl::Span<const double> a, absl::Span<const double> b);

// SHA-256, as hex, of the solution and its keys in canonical bytes: equal exactly when every bit of
// rho, a, the classes and the keys is.
std::string SolutionDigest(const svdd::Solution& solution, absl::Span<const double> keys);

}  // namespace lethe::paper

#endif  // LETHE_PAPER_GATE_H_
