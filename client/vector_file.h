// ParseVectors: a matrix of doubles out of the bytes of a file, text or NumPy's .npy, told apart by the
// latter's magic.
//
//   text  one row a line, numbers separated by white space or one comma; from # on a comment; lines without
//         numbers are skipped. No header line.
//   .npy  format 1.0 or 2.0, '<f8' or '<f4', C order, 2-d; a 1-d array is one row.
//
// Equation:  none.
// Shapes:    values [num_rows][num_columns], row-major, both at least 1.
// Units:     none.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT that begins with `name` and, in a text, the line and the column (numbers
//            of the line, counted from 1), and says what is accepted: a word that is no decimal number, an
//            empty field, a row of another length than the first, no number at all, NaN, infinity or a
//            number beyond 2^400 in magnitude, more than kVectorNumbersMax numbers; in .npy a header,
//            version, dtype, order or shape not named above, and data of another size than the shape's.
//            Never repeats what the file holds.
// Effects:   none.
// Numerics:  text: the double nearest to the decimal number; '<f4': exact.
// Threads:   safe.
#ifndef LETHE_CLIENT_VECTOR_FILE_H_
#define LETHE_CLIENT_VECTOR_FILE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lethe::client {

// 1 GiB of doubles.
inline constexpr int64_t kVectorNumbersMax = int64_t{1} << 27;
// The server's limit, so that an error can name the line.
inline constexpr double kVectorMagnitudeMax = 0x1.0p400;

struct VectorMatrix {
  int64_t num_rows = 0;
  int64_t num_columns = 0;
  std::vector<double> values;
};

// Keys with their values, row by row; values of 0 columns: keys alone.
struct VectorRows {
  VectorMatrix keys;
  VectorMatrix values;
};

absl::StatusOr<VectorMatrix> ParseVectors(absl::string_view name, absl::string_view bytes);

absl::StatusOr<VectorMatrix> ParseTextVectors(absl::string_view name, absl::string_view text);
absl::StatusOr<VectorMatrix> ParseNpyVectors(absl::string_view name, absl::string_view bytes);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_VECTOR_FILE_H_
