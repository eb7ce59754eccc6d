// EncloseOptimum: whether a partition is that of the exact optimum, and how near a witness is to it.
//
// Equation:  for distinct keys with multiplicities w, margin set S (not empty), error set E, and a
//            witness (lambda^, a^_S) of a*, lambda*, the solution of the partition's linear system
//            2(sum_j K_ij w_j a_j + ridge a_i) = lambda on S, sum_S w a = m - |E|, a = 1 on E:
//              r0 = m - |E| - sum_S w a^, r1_i = lambda^ - 2(sum_j K_ij w_j a^_j + ridge a^_i),
//              |a^ - a*| <= r = |r0|/sqrt(s) + (|r1| + 2s(1 + ridge)|r0|/sqrt(s))/(2 ridge),
//              |lambda^ - lambda*| <= |r1|/sqrt(s) + 2 sqrt(s)(1 + ridge) r,  s = sum_S w,
//            |x| = sqrt(sum_S w x^2); why: polish.h, with the exact K, whose Gram matrix is positive
//            semidefinite. Proved: on S r < a^ < 1 - r; on E and on the reserve set 2(...) - lambda
//            < 0 and > 0, each by more than its error, the lambda error and 2 sqrt(s) r together
//            (|sum_j K_ij w_j d_j| <= sum w|d| <= sqrt(s) |d|). Then (a*, lambda*) fulfils the KKT
//            conditions of a strictly convex problem: it is the optimum, and every copy of a key has
//            the same a*.
// Shapes:    rows: one per distinct key.
// Units:     a-units (problem.h).
// Requires:  a margin row; ridge > 0; sum_error >= 0.
// Rejects:   none.
// Effects:   none.
// Numerics:  double-double, outward rounding: `proved` is never wrong, the radii are never too
//            small.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_ENCLOSURE_H_
#define LETHE_MEMORY_SVDD_ENCLOSURE_H_

#include <vector>

#include "memory/svdd/double_double.h"
#include "memory/svdd/problem.h"

namespace lethe::svdd {

struct EnclosureRow {
  Partition place = Partition::kReserve;
  double copies = 1.0;  // w
  DoubleDouble a;       // the witness' on S, 1 on E, 0 else
  DoubleDouble sum;     // sum_j K_ij w_j a_j
};

struct EnclosureInput {
  double mass = 0.0;
  double ridge = 0.0;
  DoubleDouble lambda;
  std::vector<EnclosureRow> rows;
  double sum_error = 0.0;  // on every sum
};

struct Enclosure {
  bool proved = false;
  double radius = 0.0;         // r
  double lambda_radius = 0.0;  // of lambda^
  double copies = 0.0;         // s
  // Bound on |sum_S w_j d_j kappa(q, x_j)|, d = a^ - a*, for every q: sqrt(s) r.
  double sum_radius = 0.0;
};

Enclosure EncloseOptimum(const EnclosureInput& input);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_ENCLOSURE_H_
