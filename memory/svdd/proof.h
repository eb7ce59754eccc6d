// ProveOptimality: P2, rigorous bounds on how far a reported solution is from the exact optimum,
// from the bundle alone: parameters, keys, classes, a, rho and a witness.
//
// Equation:  problem.h with the real-valued kappa of the stored key bits, alpha = a/m. Always: a^ =
//            the reported a made feasible (clip to [0,1], rest of the sum into rows with room,
//            margin rows first), delta = |alpha - alpha^|_1, and for the reported rho and any
//            optimum alpha*:
//              G <= sum alpha^_i max(g_i, 0) + (1/m - alpha^_i) max(-g_i, 0);
//              |sum alpha_i kappa(q,x_i) - sum alpha*_i kappa(q,x_i)| <= sqrt(G/2) + delta  for
//                every q;
//              |alpha - alpha*|_2 <= sqrt(G/(2 ridge)) + delta;
//              |rho - rho*| <= |rho - h_(ceil m)(a^)| + 2 sqrt((1 + ridge) G/2), h_(k) = k-th
//                largest;
//              |f(x) - f*(x)| <= the last + 2 times the bound on sum alpha kappa, f(x) = rho - 1 + 2
//                sum alpha_i kappa(x,x_i).
//            Partition proved, by the witness (enclosure.h; S and r as there), r_i = |a_i - a^_i| +
//            r:
//              |alpha_i - alpha*_i| <= r_i/m and <= (max_S r_i/a_i) alpha_i;
//              |sum (alpha_i - alpha*_i) kappa(q,x_i)| <= (min(sqrt(u'Ku), max(sum u+, sum u-)) +
//                sqrt(s) r)/m, u = a - a^, u+ and u- its parts by sign;
//              |rho - rho*| <= |rho - (1 - lambda^/m)| + the lambda radius/m;
//            without a witness where it needs none: n <= M has the one feasible point a = 1; an
//            empty S is proved if |E| = m and max_R h < min_E h. Of two bounds the smaller one is
//            returned.
// Shapes:    keys [n][key_dim] f64 row-major (f32 keys widened); classes, a: [n]; witness: one a per
//            distinct key of the margin set, by first rank.
// Units:     alpha-units in the bounds; margins and the witness in a-units.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT naming the field: n = 0, sizes that differ, non-finite or > 2^400
//            keys, parameters out of range, sigma^2 subnormal, rho not finite, a outside [0,1], a
//            class that contradicts its a (kReserve: 0, kError: 1, kMargin: 0 < a < 1); a witness
//            where n <= M or S is empty, of another length, with a outside (0,1), lambda outside
//            0..4m, or low words above half an ulp.
// Effects:   writes *gradients.
// Numerics:  double-double (106 bits) with the error terms of the kernel evaluation (u_v = (d+16)
//            2^-103) and of the sums added, outward rounding: every returned bound is at least the
//            true one, partition_proved is never wrong, whatever the witness. Never uses the
//            server's kernel routine or exp. Equal keys are grouped here, whatever the bundle says
//            about them: kernel values are of distinct keys (equal keys have equal kappa), each
//            weighted by the sum of its rows' a^. Cost O(n log n + D s d), D distinct keys, s of
//            them with an a^ > 0.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_PROOF_H_
#define LETHE_MEMORY_SVDD_PROOF_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "memory/svdd/double_double.h"
#include "memory/svdd/problem.h"

namespace lethe::svdd {

// The solution of the reported partition's linear system for the exact kernel, to double-double
// accuracy. A claim: ProveOptimality measures how good it is.
struct Witness {
  DoubleDouble lambda;          // m (1 - rho)
  std::vector<DoubleDouble> a;  // of one copy of each distinct margin key
};

struct ReportedSolution {
  absl::Span<const Partition> classes;
  absl::Span<const double> a;
  double rho = 0.0;
  const Witness* witness = nullptr;  // null: none
};

struct OptimalityBounds {
  double gap = 0.0;               // G, bound on the duality gap in alpha-units
  double kernel_sum_bound = 0.0;  // on |sum alpha kappa - sum alpha* kappa|, every query
  double alpha_bound = 0.0;       // on |alpha_i - alpha*_i|, every i
  double alpha_norm_bound = 0.0;  // on |alpha - alpha*|_2
  double rho_bound = 0.0;         // on |rho - rho*|
  double decision_bound = 0.0;    // on |f(x) - f*(x)|, every x
  double delta = 0.0;             // |alpha - alpha^|_1
  // On |alpha_i - alpha*_i|/alpha_i over the support; +infinity when the partition is not proved.
  double weight_ratio_bound = std::numeric_limits<double>::infinity();
  // On |o_c - o*_c|, every query and coordinate; +infinity: no bound uniform in q. Set by
  // AddReadoutBound (readout_bound.h), which knows the values.
  double readout_bound = std::numeric_limits<double>::infinity();
  // Smallest margin of the reported solution, in a-units, rounded down; negative when a sign is
  // wrong.
  double smallest_margin = 0.0;
  bool partition_proved = false;  // the classes are those of the exact optimum
  int64_t num_margin = 0;
  int64_t num_error = 0;
  int64_t num_reserve = 0;
};

// gradients, when not null, receives g_i = rho - h_i of every row at a^, rounded to nearest, in
// alpha-units.
absl::StatusOr<OptimalityBounds> ProveOptimality(const Params& params,
                                                 absl::Span<const double> keys,
                                                 const ReportedSolution& reported,
                                                 std::vector<double>* gradients = nullptr);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_PROOF_H_
