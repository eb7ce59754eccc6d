#include "kernels/matmul/unpack.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/matmul/panel.h"

namespace lethe {

std::vector<float> Unpack(const PackedMatrix& matrix) {
  LETHE_CHECK(matrix.data() != nullptr);
  const int64_t num_inputs = matrix.num_inputs();
  const bool is_bf16 = matrix.storage() == PackedMatrix::Storage::kBf16;
  const auto* bytes = static_cast<const std::byte*>(matrix.data());
  std::vector<float> w(static_cast<size_t>(matrix.num_outputs() * num_inputs));
  for (int64_t output = 0; output < matrix.num_outputs(); ++output) {
    const int64_t panel = output / matmul::kPanelOutputs;
    const int64_t local = output % matmul::kPanelOutputs;
    // As Pack places it.
    const int64_t place =
        is_bf16 ? local % matmul::kHalfPanel * 2 + local / matmul::kHalfPanel : local;
    for (int64_t k = 0; k < num_inputs; ++k) {
      const int64_t at = (panel * num_inputs + k) * matmul::kPanelOutputs + place;
      uint32_t bits = 0;
      if (is_bf16) {
        uint16_t high = 0;
        std::memcpy(&high, bytes + at * 2, sizeof high);
        bits = static_cast<uint32_t>(high) << 16;
      } else {
        std::memcpy(&bits, bytes + at * 4, sizeof bits);
      }
      w[static_cast<size_t>(output * num_inputs + k)] = std::bit_cast<float>(bits);
    }
  }
  return w;
}

}  // namespace lethe
