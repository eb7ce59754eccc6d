// MedianSigma: the kernel width of the median rule, from a sample.
//
// The sample must not be what the session will hold: a width taken from a session's own inputs would
// outlive their Forget.
//
// Equation:  sigma^2 = median of |x_i - x_j|^2 over the pairs i < j of the rows taken; of an even number of
//            pairs the mean of the middle two.
// Shapes:    sample [num_rows][num_columns].
// Units:     sigma as the components.
// Requires:  sample as ParseVectors gives it, rows_max at least 2.
// Rejects:   INVALID_ARGUMENT for fewer than 2 rows, and where sigma is no width that a session takes (0:
//            at least half of the pairs are equal rows).
// Effects:   none.
// Numerics:  of more than rows_max rows those at i * num_rows / rows_max are taken: no random draw. Doubles,
//            in the order of the components. O(rows_max^2 num_columns) time, 4 rows_max^2 bytes.
// Threads:   safe.
#ifndef LETHE_CLIENT_MEDIAN_SIGMA_H_
#define LETHE_CLIENT_MEDIAN_SIGMA_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "client/vector_file.h"

namespace lethe::client {

struct MedianWidth {
  double sigma = 0;
  int64_t num_rows = 0;  // rows taken
  int64_t num_pairs = 0;
};

absl::StatusOr<MedianWidth> MedianSigma(const VectorMatrix& sample, int64_t rows_max);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_MEDIAN_SIGMA_H_
