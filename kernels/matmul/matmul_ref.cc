#include "kernels/base/check.h"
#include "kernels/matmul/matmul.h"

namespace lethe {

void MatmulRef(absl::Span<const float> x, int64_t num_rows, absl::Span<const float> w,
               int64_t num_outputs, int64_t num_inputs, absl::Span<double> y) {
  LETHE_CHECK(y.size() == static_cast<size_t>(num_rows * num_outputs));
  for (int64_t m = 0; m < num_rows; ++m) {
    for (int64_t n = 0; n < num_outputs; ++n) {
      double sum = 0.0;
      for (int64_t k = 0; k < num_inputs; ++k) {
        sum += static_cast<double>(x[static_cast<size_t>(m * num_inputs + k)]) *
               static_cast<double>(w[static_cast<size_t>(n * num_inputs + k)]);
      }
      y[static_cast<size_t>(m * num_outputs + n)] = sum;
    }
  }
}

}  // namespace lethe
