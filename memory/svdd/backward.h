// SolutionBackward, DecisionBackward: gradients of a loss through the support-vector solution.
//
// Equation:  SV-Attention A (papers' fixed-partition system) in the variables of problem.h. On the
//            margin set S the optimum solves  2(K + ridge I)a - m diag(K) + m rho = 0,  sum_S a = m
//            - |E|. For a loss L with adjoints rho' = dL/drho and a' = dL/da let p be 0 outside S and
//              2(K + ridge I)_SS p + p0 1 = a'_S,   sum_S p = rho'/m.
//            Then dL/dK_ij = -2 p_i a_j + [i = j] m p_i, entries of K counted one by one, and with
//            K_ij = exp(-|x_i - x_j|^2/sigma^2), whose diagonal is constant,
//              dL/dx_i   = (4/sigma^2) sum_j (p_i a_j + p_j a_i) K_ij (x_i - x_j),
//              dL/dsigma = -(4/sigma^3) sum_ij p_i a_j K_ij |x_i - x_j|^2,
//              dL/dridge = -2 sum_i p_i a_i.
//            a_E and a_R are constant, so a' counts on S alone. S empty (n <= M included): a is
//            constant, only rho moves, being the smallest h of E: p = rho'/m there, shared equally
//            where several keys have it (a subgradient), and the formulas hold as they are.
//            Equal keys may have different a'. Among the copies of one key the matrix acts on
//            differences as 2 ridge, on means as the merged matrix of cholesky.h does, so p_i = P + (a'_i
//            - mean a')/(2 ridge), with w P from the factor.
//            Decision function: f(x) = (2/m) sum_i a_i K(x, x_i) + rho - 1.
// Shapes:    a, dual: [n]; keys: [n][key_dim], in rank order; queries, f' as named below.
// Units:     a-units.
// Requires:  solution is that of gram's keys; adjoint.a has n entries or none (zeros); sizes that match
//            (LETHE_CHECK).
// Rejects:   none.
// Effects:   SolutionBackward brings factor (any start) to the margin set and reads cached Gram rows.
// Numerics:  f64, a plain reference without contract on bits: error about cond(2(K + ridge I)_SS) ulps.
//            The derivative is that of a fixed partition, the exact one wherever all margins are
//            positive; at a partition change a is not differentiable. Cost O(s^2) for two triangular
//            solves with a factor that is there, and O(D s key_dim) for the keys: D distinct keys in
//            S and E, s of them in S; with S empty O(D^2 key_dim).
// Threads:   safe for different gram and factor.
#ifndef LETHE_MEMORY_SVDD_BACKWARD_H_
#define LETHE_MEMORY_SVDD_BACKWARD_H_

#include <vector>

#include "absl/types/span.h"

#include "memory/svdd/cholesky.h"
#include "memory/svdd/gram_cache.h"
#include "memory/svdd/problem.h"

namespace lethe::svdd {

// dL/drho and dL/da.
struct SolutionAdjoint {
  double rho = 0.0;
  std::vector<double> a;
};

struct SolutionGradient {
  std::vector<double> dual;  // p
  std::vector<double> keys;
  double sigma = 0.0;
  double ridge = 0.0;
};

SolutionGradient SolutionBackward(GramCache* gram, const Params& params, const Solution& solution,
                                  const SolutionAdjoint& adjoint, CholeskyFactor* factor);

// What f(x) of given queries asks for: the adjoint that goes into SolutionBackward, and the gradients
// that do not pass through the solution.
struct DecisionGradient {
  SolutionAdjoint adjoint;
  std::vector<double> keys;     // direct part
  std::vector<double> queries;  // [q][key_dim]
  double sigma = 0.0;           // direct part
};

// f_adjoint: [q], dL/df of each query.
DecisionGradient DecisionBackward(const Params& params, absl::Span<const double> keys,
                                  const Solution& solution, absl::Span<const double> queries,
                                  absl::Span<const double> f_adjoint);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_BACKWARD_H_
