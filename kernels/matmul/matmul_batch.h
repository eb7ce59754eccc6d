// DeviceMatrix, MatmulBatch: y = W x for the tokens of many sessions, on the queue's device.
//
// Equation:  y[m][n] = sum_k x[m][k] w[n][k].
// Shapes:    w: [num_outputs][num_inputs] f32 row-major on the host; x: [num_rows][num_inputs], y:
//            [num_rows][num_outputs] f32 on the device, any alignment of a float; any sizes >= 1,
//            num_rows may be 0 (no-op).
// Units:     none.
// Requires:  sizes >= 1, num_inputs <= 2^20, a matrix of this queue (LETHE_CHECK); y does not overlap x.
// Rejects:   DeviceMatrix::Create: RESOURCE_EXHAUSTED where the device is full. MatmulBatch: INTERNAL
//            when the launch fails.
// Effects:   enqueues the work that writes y. A DeviceMatrix owns its copy of the weights, in the
//            device's own order, and is immutable.
// Numerics:  a row's bits depend on this row and W alone: not on num_rows, the other rows, or where the
//            row lies. On the host they are Matmul's (matmul.h). On CUDA the inputs are cut into slices
//            of kSliceInputs; a slice is summed from +0 by the tensor cores, 16 inputs at a time in
//            order, and the slices are added in f32 in order. Every number is a sum of BF16 numbers: a
//            weight of BF16 storage is one, an f32 weight three (exact); an activation is as many as
//            `terms` says. Error, in units of sum_k |x w|, at most 2^-8 with one term, 2^-17 with two,
//            2^-19 with three (the tensor cores truncate their sums; two terms of f32 weights are not
//            offered: they always take three, less the products below 2^-24). NaN and infinities
//            make their row's sums NaN or infinite, |x| within 2^-8 of the largest f32 too.
//            Cost 2 num_rows num_outputs num_inputs FLOP a product of terms; few rows stream the
//            weights once.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_MATMUL_MATMUL_BATCH_H_
#define LETHE_KERNELS_MATMUL_MATMUL_BATCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/queue.h"
#include "kernels/matmul/matmul.h"

namespace lethe {

// Into how many BF16 numbers an activation is split, where weights are BF16 and the device multiplies
// BF16 numbers. Two keep 17 of an f32's 24 bits, three all.
enum class ActivationTerms { kOne = 1, kTwo = 2, kThree = 3 };

class DeviceMatrix {
 public:
  DeviceMatrix() = default;  // no weights

  // kBf16 when every weight is a BF16 value, as PackedMatrix::Pack.
  static absl::StatusOr<DeviceMatrix> Create(Queue* queue, absl::Span<const float> w,
                                             int64_t num_outputs, int64_t num_inputs);

  int64_t num_outputs() const { return num_outputs_; }
  int64_t num_inputs() const { return num_inputs_; }
  PackedMatrix::Storage storage() const { return storage_; }
  size_t size_bytes() const { return tiles_.empty() ? packed_.size_bytes() : tiles_.size(); }

  const PackedMatrix& packed() const { return packed_; }    // the weights on the host, else empty
  const std::byte* tiles() const { return tiles_.data(); }  // on CUDA (matmul_cuda.h), else null

 private:
  int64_t num_outputs_ = 0;
  int64_t num_inputs_ = 0;
  PackedMatrix::Storage storage_ = PackedMatrix::Storage::kF32;
  PackedMatrix packed_;
  DeviceArray<std::byte> tiles_;
};

absl::Status MatmulBatch(Queue* queue, const float* x, int64_t num_rows, const DeviceMatrix& w,
                         ActivationTerms terms, float* y);

}  // namespace lethe

#endif  // LETHE_KERNELS_MATMUL_MATMUL_BATCH_H_
