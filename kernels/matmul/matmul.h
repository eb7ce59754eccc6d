// PackedMatrix, Matmul: a weight matrix packed at load, and y = W x for a batch of tokens.
//
// Equation:  y[m][n] = sum_k x[m][k] w[n][k].
// Shapes:    w: [num_outputs][num_inputs] f32 row-major (safetensors' order); x:
//            [num_rows][num_inputs]; y: [num_rows][num_outputs]; any sizes >= 1, any alignment;
//            num_rows may be 0 (no-op).
// Units:     none.
// Requires:  sizes as stated; y does not overlap x (LETHE_CHECK on sizes).
// Rejects:   none.
// Effects:   writes y. A PackedMatrix owns its storage, is immutable after Pack and can be shared.
// Numerics:  each output element is one sequential fma chain over k = 0, 1, … from +0 in f32,
//            whatever num_rows is, so that batching, order and alignment never change bits. A
//            vector's lanes are outputs, so neither does its width, which is chosen as the program
//            runs (AVX2, AVX-512). Weights that are all BF16 values are kept as BF16 and widened on
//            the fly: half the traffic, the same bits. Cost O(num_rows num_outputs num_inputs); one
//            row streams the weights once.
// Threads:   safe.
#ifndef LETHE_KERNELS_MATMUL_MATMUL_H_
#define LETHE_KERNELS_MATMUL_MATMUL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"

namespace lethe {

class PackedMatrix {
 public:
  enum class Storage { kF32, kBf16 };

  // An empty matrix; Matmul may not be called with it.
  PackedMatrix() = default;
  PackedMatrix(PackedMatrix&&) = default;
  PackedMatrix& operator=(PackedMatrix&&) = default;

  // Chooses kBf16 when every weight is a BF16 value (an f32 with 16 low zero bits), else kF32.
  static PackedMatrix Pack(absl::Span<const float> w, int64_t num_outputs, int64_t num_inputs);

  int64_t num_outputs() const { return num_outputs_; }
  int64_t num_inputs() const { return num_inputs_; }
  Storage storage() const { return storage_; }
  size_t size_bytes() const { return size_bytes_; }

  // Panel p holds outputs 16p … 16p+15 as [num_inputs][16], zeros past num_outputs. kBf16 keeps
  // outputs 16p+i and 16p+8+i side by side, so that a shift and a mask widen eight of each.
  const void* data() const { return data_.get(); }

 private:
  struct AlignedDelete {
    void operator()(std::byte* data) const;
  };

  int64_t num_outputs_ = 0;
  int64_t num_inputs_ = 0;
  Storage storage_ = Storage::kF32;
  size_t size_bytes_ = 0;
  std::unique_ptr<std::byte, AlignedDelete> data_;
};

void Matmul(absl::Span<const float> x, int64_t num_rows, const PackedMatrix& w,
            absl::Span<float> y);

// The oracle: the same sums in double, in plain loops over the unpacked weights.
void MatmulRef(absl::Span<const float> x, int64_t num_rows, absl::Span<const float> w,
               int64_t num_outputs, int64_t num_inputs, absl::Span<double> y);

}  // namespace lethe

#endif  // LETHE_KERNELS_MATMUL_MATMUL_H_
