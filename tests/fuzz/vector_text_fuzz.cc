// Goal: text from outside never crashes the reader of matrices, and what is accepted is one.
// Method: parse, check the shape, write in 17 digits, parse again, compare the bits.
#include <cstdio>
#include <cstring>

#include "client/vector_file.h"

#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/vector_matrix_check.h"

namespace lethe::fuzz {

void FuzzVectorText(absl::string_view bytes) {
  const auto matrix = client::ParseTextVectors("file", bytes);
  if (!matrix.ok()) return;
  CheckMatrix(*matrix);
  std::string text;
  for (size_t i = 0; i < matrix->values.size(); ++i) {
    char word[40];
    std::snprintf(word, sizeof word, "%.17g", matrix->values[i]);
    text += word;
    text += (i + 1) % static_cast<size_t>(matrix->num_columns) == 0 ? '\n' : ',';
  }
  const auto again = client::ParseTextVectors("file", text);
  LETHE_CHECK(again.ok() && SameBits(*matrix, *again));
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzVectorText)
