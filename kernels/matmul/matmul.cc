#include "kernels/matmul/matmul.h"

#include <bit>
#include <cstring>
#include <new>

#include "kernels/base/check.h"
#include "kernels/matmul/panel.h"

namespace lethe {
namespace {

constexpr std::align_val_t kAlignment{64};

bool IsBf16(float w) { return (std::bit_cast<uint32_t>(w) & 0xffffu) == 0; }

// Element (k, i) of a panel that starts at `output`; zero past the last output.
float PanelElement(absl::Span<const float> w, int64_t num_outputs, int64_t num_inputs,
                   int64_t output, int64_t k) {
  if (output >= num_outputs) return 0.0f;
  return w[static_cast<size_t>(output * num_inputs + k)];
}

}  // namespace

void PackedMatrix::AlignedDelete::operator()(std::byte* data) const {
  ::operator delete(data, kAlignment);
}

PackedMatrix PackedMatrix::Pack(absl::Span<const float> w, int64_t num_outputs,
                                int64_t num_inputs) {
  LETHE_CHECK(num_outputs >= 1 && num_inputs >= 1);
  LETHE_CHECK(w.size() == static_cast<size_t>(num_outputs * num_inputs));
  PackedMatrix packed;
  packed.num_outputs_ = num_outputs;
  packed.num_inputs_ = num_inputs;
  packed.storage_ = Storage::kBf16;
  for (const float value : w) {
    if (!IsBf16(value)) {
      packed.storage_ = Storage::kF32;
      break;
    }
  }
  const int64_t num_panels = matmul::NumPanels(num_outputs);
  const size_t num_elements = static_cast<size_t>(num_panels * num_inputs * matmul::kPanelOutputs);
  const bool is_bf16 = packed.storage_ == Storage::kBf16;
  packed.size_bytes_ = num_elements * (is_bf16 ? sizeof(uint16_t) : sizeof(float));
  packed.data_.reset(static_cast<std::byte*>(::operator new(packed.size_bytes_, kAlignment)));
  std::byte* next = packed.data_.get();
  for (int64_t p = 0; p < num_panels; ++p) {
    for (int64_t k = 0; k < num_inputs; ++k) {
      for (int64_t i = 0; i < matmul::kPanelOutputs; ++i) {
        // Position i of a BF16 panel row holds output i/2 or, when i is odd, output 8 + i/2.
        const int64_t local = is_bf16 ? i / 2 + (i % 2) * matmul::kHalfPanel : i;
        const float value =
            PanelElement(w, num_outputs, num_inputs, p * matmul::kPanelOutputs + local, k);
        if (is_bf16) {
          const auto high = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
          std::memcpy(next, &high, sizeof high);
          next += sizeof high;
        } else {
          std::memcpy(next, &value, sizeof value);
          next += sizeof value;
        }
      }
    }
  }
  return packed;
}

void Matmul(absl::Span<const float> x, int64_t num_rows, const PackedMatrix& w,
            absl::Span<float> y) {
  LETHE_CHECK(w.data() != nullptr && num_rows >= 0);
  LETHE_CHECK(x.size() == static_cast<size_t>(num_rows * w.num_inputs()));
  LETHE_CHECK(y.size() == static_cast<size_t>(num_rows * w.num_outputs()));
  if (num_rows == 0) return;
  const matmul::Problem problem = {x.data(),        num_rows,       w.data(),
                                   w.num_outputs(), w.num_inputs(), y.data()};
  const matmul::Kernel& kernel = matmul::SupportedKernels().back();
  const bool is_bf16 = w.storage() == PackedMatrix::Storage::kBf16;
  (is_bf16 ? kernel.multiply_bf16 : kernel.multiply_f32)(problem);
}

}  // namespace lethe
