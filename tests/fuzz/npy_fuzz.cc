// Goal: .npy files from outside never crash the reader, and what is accepted is a matrix.
// Method: parse, check the shape, write as '<f8' with numpy's header, parse again, compare the bits.
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/vector_file.h"

#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/vector_matrix_check.h"

namespace lethe::fuzz {

void FuzzNpy(absl::string_view bytes) {
  const auto matrix = client::ParseNpyVectors("file", bytes);
  if (!matrix.ok()) return;
  CheckMatrix(*matrix);
  const std::string header = absl::StrCat("{'descr': '<f8', 'fortran_order': False, 'shape': (",
                                          matrix->num_rows, ", ", matrix->num_columns, "), }\n");
  std::string file = "\x93NUMPY";
  file += {'\x01', '\0', static_cast<char>(header.size()), '\0'};
  file += header;
  file.append(reinterpret_cast<const char*>(matrix->values.data()),
              matrix->values.size() * sizeof(double));
  const auto again = client::ParseNpyVectors("file", file);
  LETHE_CHECK(again.ok() && SameBits(*matrix, *again));
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzNpy)
