// DeviceLayer, ForwardBatch, BufferPlan: one layer's pass over a batch, and the buffers it works in; internal
// to server/device.
//
// Equation:  docs/model-format.md 2.1-2.3. The residual stream is x + y: a layer adds y to x where it norms the
//            sum, and leaves in y what it adds itself; the first layer finds nothing in y.
// Shapes:    x, y: [num_tokens][width] f32; a buffer: [max_tokens][columns] f32, rows one behind the other
//            from the first.
// Units:     tokens.
// Requires:  weights, config and pools outlive the layer. Every layer takes its buffers from the start of
//            the same memory: they hold nothing between layers. A layer made on a plan without memory tells
//            how much it needs and may not run.
// Rejects:   Make…: the device's errors. Forward: INTERNAL when a launch fails.
// Effects:   Forward enqueues the work that moves the slots' states on; a number of q, k, v that is not
//            finite becomes 0 and marks its row in is_bad.
// Numerics:  as device_forward.h.
// Threads:   the queue's owner.
#ifndef LETHE_SERVER_DEVICE_DEVICE_LAYER_H_
#define LETHE_SERVER_DEVICE_DEVICE_LAYER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/packed_sequences.h"
#include "kernels/base/queue.h"
#include "kernels/matmul/matmul_batch.h"
#include "server/device/device_weights.h"
#include "server/device/slot_arrays.h"
#include "server/device/sv_tables.h"

namespace lethe {

// An activation keeps 17 of its 24 bits where weights are BF16 (matmul_batch.h).
inline constexpr ActivationTerms kActivationTerms = ActivationTerms::kTwo;

struct ForwardBatch {
  Queue* queue = nullptr;
  PackedSequences sequences;
  const int32_t* offsets = nullptr;     // sequences.offsets in 32 bits
  int64_t most_tokens_after = 0;        // of a sequence: its rank plus its tokens
  const SvTables* sv_tables = nullptr;  // of a model with sv groups
  int64_t most_distinct = 0;            // keys of a support, or more (sv_read_batch.h)
  float* x = nullptr;
  float* y = nullptr;
  uint8_t* is_bad = nullptr;  // [num_tokens]
};

class BufferPlan {
 public:
  // memory null: counts only.
  BufferPlan(std::byte* memory, int64_t max_tokens) : memory_(memory), max_tokens_(max_tokens) {}

  // A layer begins.
  void Restart() { used_ = 0; }
  float* Rows(int64_t columns) {
    widest_ = std::max(widest_, columns);
    return reinterpret_cast<float*>(Bytes(static_cast<size_t>(max_tokens_ * columns) * 4));
  }
  std::byte* Bytes(size_t size) {
    std::byte* begin = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    most_ = std::max(most_, used_);
    return begin;
  }

  size_t most_bytes() const { return most_; }
  int64_t widest() const { return widest_; }  // columns

 private:
  static constexpr size_t kAlignment = 256;
  std::byte* memory_;
  int64_t max_tokens_;
  size_t used_ = 0;
  size_t most_ = 0;
  int64_t widest_ = 1;
};

// What layers are made of.
struct LayerSetup {
  Queue* queue = nullptr;
  const SlotArrays* arrays = nullptr;
  const LayerParts* parts = nullptr;
  int64_t width = 0;
  float norm_eps = 0.0f;
  bool is_first = false;
  int64_t max_tokens = 0;  // of a call; of a session: most_tokens
  int64_t max_sequences = 0;
  int64_t most_tokens = 0;
  BufferPlan* plan = nullptr;
  int64_t* num_sv_groups = nullptr;  // made so far
};

class DeviceLayer {
 public:
  virtual ~DeviceLayer() = default;
  virtual absl::Status Forward(const ForwardBatch& batch) const = 0;
};

// normed = rms_norm(x + y), x + y in x; where `is_first` there is no y yet.
absl::Status NormResidual(const ForwardBatch& batch, bool is_first, const DeviceArray<float>& gain,
                          float norm_eps, float* normed);

absl::StatusOr<std::unique_ptr<DeviceLayer>> MakeLocalLayer(const LayerSetup& setup,
                                                            const LocalLayerConfig& config,
                                                            const DeviceLocalWeights& weights);
absl::StatusOr<std::unique_ptr<DeviceLayer>> MakeMlpLayer(const LayerSetup& setup,
                                                          const DeviceMlpWeights& weights);
absl::StatusOr<std::unique_ptr<DeviceLayer>> MakeMemoryLayer(const LayerSetup& setup,
                                                             const MemoryLayerConfig& config,
                                                             const DeviceMemoryWeights& weights);

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_DEVICE_LAYER_H_
