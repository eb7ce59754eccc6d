// MassOf, TopRanks, LastRanks: what a budget keeps when the support set does not choose.
//
// Equation:  mass_i = sum over queries kappa(q, x_i): with the evaluation's queries the paper's
//            "H2O oracle", with the keys themselves less kappa(x_i, x_i) its "self-mass". A stand-
//            in of the paper's for H2O (which accumulates softmax attention), not that algorithm.
// Shapes:    masses: [keys]; ranks ascending.
// Units:     none.
// Requires:  0 <= k <= number of keys.
// Rejects:   none.
// Effects:   none.
// Numerics:  equal masses: the lower rank first.
// Threads:   safe.
#ifndef LETHE_PAPER_POLICIES_H_
#define LETHE_PAPER_POLICIES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "paper/points.h"

namespace lethe::paper {

std::vector<double> MassOf(double sigma, const Points& keys, const Points& queries);
std::vector<int64_t> TopRanks(absl::Span<const double> masses, int64_t k);
std::vector<int64_t> LastRanks(int64_t n, int64_t k);

}  // namespace lethe::paper

#endif  // LETHE_PAPER_POLICIES_H_
