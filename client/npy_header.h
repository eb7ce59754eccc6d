// ParseNpyHeader: the head of a NumPy .npy file, as numpy.lib.format describes it.
//
//   "\x93NUMPY" u8 major u8 minor, u16 (version 1) or u32 (version 2) length, little-endian, then that many
//   bytes: {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), } padded with blanks to a newline
//
// Equation:  none.
// Shapes:    a 1-d array of n numbers is one row; num_rows, num_columns at least 1.
// Units:     bytes.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT that says which part is not as accepted: magic, version, header, dtype, order,
//            shape.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_NPY_HEADER_H_
#define LETHE_CLIENT_NPY_HEADER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lethe::client {

inline constexpr absl::string_view kNpyMagic = "\x93NUMPY";

struct NpyHeader {
  int64_t num_rows = 0;
  int64_t num_columns = 0;
  size_t item_bytes = 0;   // 4 or 8
  size_t data_offset = 0;  // where the numbers begin
};

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view bytes);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_NPY_HEADER_H_
