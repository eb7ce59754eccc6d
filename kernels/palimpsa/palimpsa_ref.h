// PalimpsaRefRecurrent, PalimpsaRefScan, PalimpsaRefPosterior: Palimpsa in double precision, in the
// three forms of the paper.
//
// Equation:  Bonnet et al. 2026; papers.md 2.1. With a = e^log_decay and prior precision I_p = 1:
//            Recurrent: M <- a M + w k^T, I <- a I + b (x) k^2, mu = M / (I + 1). Scan: the two
//            linear recurrences by the associative operator (M_b + F_b M_a, I_b + F_b I_a, F_a
//            F_b), combined in a tree over all tokens. Posterior: I~ <- a I~ + (1 - a) I_p + b (x)
//            k^2, mu <- a I~_old / I~ mu + w k^T / I~. All read o = s mu q and, if asked, the
//            variance s^2 sum_j q_j^2 / I~_ij (the paper's reference; its kernels write s).
//            Numerator: kCode takes value as v~, the gated write of the authors' code, w = v~;
//            kBayes takes it as the bare x, w = b . x, the exact posterior mean.
// Shapes:    as palimpsa.h, in double; variance: [count][H][V] or empty. The state starts at zero.
// Units:     log_decay natural log, <= 0.
// Requires:  spans of exactly these sizes (LETHE_CHECK).
// Rejects:   none.
// Effects:   the results are returned.
// Numerics:  plain double loops in the paper's order and the C library's exp: an oracle, never part
//            of a state.
// Threads:   safe.
#ifndef LETHE_KERNELS_PALIMPSA_PALIMPSA_REF_H_
#define LETHE_KERNELS_PALIMPSA_PALIMPSA_REF_H_

#include <cstdint>
#include <vector>

#include "kernels/palimpsa/palimpsa.h"

namespace lethe {

enum class PalimpsaNumerator { kCode, kBayes };

struct PalimpsaRefInputs {
  std::vector<double> q;
  std::vector<double> k;
  std::vector<double> value;
  std::vector<double> log_decay;
  std::vector<double> precision;
};

struct PalimpsaRefOptions {
  PalimpsaShape shape;
  double read_scale = 1.0;
  PalimpsaNumerator numerator = PalimpsaNumerator::kCode;
};

struct PalimpsaRefResult {
  std::vector<double> m;      // after the last token
  std::vector<double> i_bar;  // after the last token
  std::vector<double> out;
  std::vector<double> variance;
};

PalimpsaRefResult PalimpsaRefRecurrent(const PalimpsaRefOptions& options,
                                       const PalimpsaRefInputs& inputs, int64_t count);
PalimpsaRefResult PalimpsaRefScan(const PalimpsaRefOptions& options,
                                  const PalimpsaRefInputs& inputs, int64_t count);
PalimpsaRefResult PalimpsaRefPosterior(const PalimpsaRefOptions& options,
                                       const PalimpsaRefInputs& inputs, int64_t count);

}  // namespace lethe

#endif  // LETHE_KERNELS_PALIMPSA_PALIMPSA_REF_H_
