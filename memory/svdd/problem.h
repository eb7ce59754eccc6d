// Params, Partition, Solution: the support-vector problem of one head and its canonical solution.
//
// Equation:  minimise a'(K + ridge I)a - m diag(K)'a  subject to  sum a = m = min(M, n), 0 <= a_i
//            <= 1, with K_ij = exp(-|x_i - x_j|^2 / sigma^2); the SVDD dual (Tax and Duin 2004;
//            SV-Attention 3.1) in the scaled variables a = alpha m, M = 1/C. Multiplier: lambda =
//            2((K + ridge I)a)_i on the margin; rho = 1 - lambda/m; gradient g_i = rho - h_i, h_i =
//            1 - 2((K + ridge I)a)_i/m. Margin: 0 < a < 1, g = 0. Error: a = 1, g <= 0. Reserve: a
//            = 0, g >= 0.
// Shapes:    keys [n][key_dim] row-major, in rank order; classes, a: [n].
// Units:     a in [0, 1]; margins in a-units: a_i, 1 - a_i on the margin set, m|g_i| elsewhere.
// Requires:  none.
// Rejects:   MakeParams: INVALID_ARGUMENT naming the field and its range.
// Effects:   none.
// Numerics:  n <= M is compared in doubles; then a = 1 for all, exactly. M within 1e-9 M of an
//            integer is that integer.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_PROBLEM_H_
#define LETHE_MEMORY_SVDD_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lethe::svdd {

// Numeric values are written to serialised state.
enum class Partition : uint8_t { kReserve = 0, kMargin = 1, kError = 2 };

struct Params {
  double sigma = 1.0;
  double box_mass = 256.0;   // M = 1/C
  double ridge = 0x1.0p-11;  // added to the diagonal of K
  int64_t key_dim = 64;
};

// Validated parameters, M snapped. Ranges: sigma 2^-20..2^20, box_mass 1..2^20, ridge 1e-8..1,
// key_dim 1..2^16.
absl::StatusOr<Params> MakeParams(double sigma, double box_mass, double ridge, int64_t key_dim);

// INVALID_ARGUMENT unless every component is finite and at most 2^400 in magnitude and the size is
// a multiple of key_dim.
absl::Status CheckKeys(const Params& params, absl::Span<const double> keys);

// m = min(M, n).
double Mass(const Params& params, int64_t num_keys);

struct Solution {
  int64_t num_keys = 0;
  double mass = 0.0;  // m
  double rho = 0.0;   // the ceil(m)-th largest h_i; 0 when num_keys = 0
  std::vector<Partition> classes;
  std::vector<double> a;  // exactly 0 on kReserve, 1 on kError
  // True when no partition could be proved with the threshold t (margins below it): then a is the
  // rounded double-double solution. Part of the solution: a function of the keys and parameters.
  bool ambiguous = false;
  // A proved lower bound on every margin, in a-units; +infinity when n <= M; 0 when ambiguous.
  double smallest_margin = 0.0;
};

// Bit equality of everything but smallest_margin.
bool SameBits(const Solution& a, const Solution& b);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_PROBLEM_H_
