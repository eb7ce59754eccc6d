// FistaGates: the batched training path to the gate, accelerated projected gradients and then one
// linear system on the margin set they found.
//
// Equation:  problem.h. From a feasible start, y = a, t = 1, step 1/L:
//              a+ = Pi(y - (2(K + ridge I)y - m diag(K))/L),  t+ = (1 + sqrt(1 + 4 t^2))/2,
//              y+ = a+ + (t - 1)/t+ (a+ - a),
//            Pi the projection on {0 <= a <= 1, sum a = m}: clip(z - c, 0, 1), c by bisection
//            (Beck and Teboulle 2009; SV-Attention B). Then S = {margin_tolerance < a < 1 -
//            margin_tolerance}, E above, R below, and on S, with a = 1 on E,
//              2(K + system_ridge I)a = lambda,  sum a = m - |E|.
//            Where we differ from the paper (all of it behind FistaOptions, Paper() is the paper's):
//            stopped by the KKT residual
//              (max_{a > 0} grad_i - min_{a < 1} grad_i)/2,  grad = 2(K + ridge I)a - m diag(K),
//            instead of after 80 steps; the serving ridge inside; momentum dropped where it points
//            uphill (O'Donoghue and Candes 2015); classes by what the projection
//            clipped, instead of at 1e-3; L = 2(lambda_max + ridge) with lambda_max bounded
//            from above, max_i (Kv)_i/v_i for the power iteration's v > 0 (Collatz and Wielandt)
//            instead of estimated from below; a of the system clipped to [0, 1]
//            (then the sum may miss m where the classes are not the optimum's).
// Shapes:    keys [n][key_dim], prefixes ascending, 1 <= prefix <= n; one gate per prefix.
// Units:     a-units (alpha = a/m; with m = 1/C this is the paper's iteration times m).
// Requires:  keys that passed CheckKeys (LETHE_CHECK on the sizes).
// Rejects:   none: `converged` says whether the residual was reached within max_steps.
// Effects:   with warm_start each prefix starts from the last one's iterate, new keys from 0; the
//            first, and one of another mass, from a = m/n.
// Numerics:  Real (float or double) for K and the iteration, f64 for the linear system. No contract on
//            bits. An exact optimum has residual 0; an error e of a in a direction that K does not see
//            moves grad by 2 ridge e only, hence a tolerance far below the wanted error. Cost
//            O(prefix^2) a step and O(s^3) for the system.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_FISTA_H_
#define LETHE_MEMORY_SVDD_FISTA_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "memory/svdd/problem.h"

namespace lethe::svdd {

struct FistaOptions {
  int max_steps = 20000;
  double tolerance =
      1e-4;  // of the KKT residual: the numerics' 1e-4 C in alpha-units; 0: all steps
  // S is what the projection left inside the box; one key at its bound up to rounding is no S.
  double margin_tolerance = 1e-6;
  double iteration_ridge = 0x1.0p-11;
  double system_ridge = 0x1.0p-11;
  int power_steps = 8;
  bool restart = true;
  bool upper_bound = true;  // of lambda_max
  bool clip = true;
  bool warm_start = true;

  // The serving problem's ridge, everything else as above.
  static FistaOptions Serving(const Params& params);
  // SV-Attention B at mass m: 80 steps, no ridge inside, 1e-3 I on 2 K_SS, classes at 1e-3 in
  // alpha-units, nothing clipped.
  static FistaOptions Paper(double mass);
};

struct FistaGate {
  std::vector<double> iterate;  // what the iteration ended with; feasible to rounding
  std::vector<double> a;        // after the linear system
  std::vector<Partition> classes;
  double rho = 0.0;       // 1 - lambda/m; with S empty the ceil(m)-th largest h of the iterate
  double residual = 0.0;  // of the iterate
  int num_steps = 0;
  bool converged = false;
};

template <typename Real>
std::vector<FistaGate> FistaGates(const Params& params, absl::Span<const double> keys,
                                  absl::Span<const int64_t> prefixes, const FistaOptions& options);

extern template std::vector<FistaGate> FistaGates<float>(const Params&, absl::Span<const double>,
                                                         absl::Span<const int64_t>,
                                                         const FistaOptions&);
extern template std::vector<FistaGate> FistaGates<double>(const Params&, absl::Span<const double>,
                                                          absl::Span<const int64_t>,
                                                          const FistaOptions&);

// Pi above, in place; mass <= z.size().
template <typename Real>
void ProjectToBox(double mass, std::vector<Real>* z);

extern template void ProjectToBox<float>(double, std::vector<float>*);
extern template void ProjectToBox<double>(double, std::vector<double>*);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_FISTA_H_
