// VectorRows, CheckVectorRows, EraseRows, InsertRows: matrices of a vector session by rows.
//
// Equation:  none.
// Shapes:    row-major, `width` numbers a row; a width of 0 has no numbers.
// Units:     ranks.
// Requires:  ranks ascending and in range; InsertRows: `taken` are the rows that EraseRows dropped.
// Rejects:   CheckVectorRows: INVALID_ARGUMENT naming `field`: no row, a size that is no multiple of
//            width, a component that is not finite or beyond 2^400.
// Effects:   EraseRows overwrites what it drops, and moves up what is behind it.
// Numerics:  copies.
// Threads:   safe.
#ifndef LETHE_SERVER_VECTOR_SESSION_VECTOR_ROWS_H_
#define LETHE_SERVER_VECTOR_SESSION_VECTOR_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "kernels/base/wiped.h"

namespace lethe {

// All inputs of a memory, in rank order.
struct VectorRows {
  absl::Span<const double> keys;
  absl::Span<const double> values;
  size_t key_dim = 0;
  size_t value_dim = 0;
};

absl::Status CheckVectorRows(absl::string_view field, absl::Span<const double> rows, int64_t width);

void EraseRows(absl::Span<const int64_t> ranks, size_t width, WipedVector<double>* rows);
void InsertRows(absl::Span<const int64_t> ranks, absl::Span<const double> taken, size_t width,
                WipedVector<double>* rows);

}  // namespace lethe

#endif  // LETHE_SERVER_VECTOR_SESSION_VECTOR_ROWS_H_
