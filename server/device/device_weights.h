// DeviceLayerWeights, DeviceHeadWeights: the weights of a layer and of the head on a device; internal to
// server/device.
//
// Equation:  docs/model-format.md section 2. Matrices that multiply the same rows are one matrix, their
//            outputs one behind the other: w_qkv of a local layer q, k, v; w_gate_up gate, up; of a memory
//            layer w_qkv as MemoryColumns, w_gates of its palimpsa groups as GateColumns. A sum belongs to
//            one output, so no bit depends on it. A memory layer's convolution has the taps of all groups;
//            a channel without a bias has bias 0, which adds nothing: the sum starts there anyway.
// Shapes:    as docs/model-format.md.
// Units:     none.
// Requires:  none.
// Rejects:   Make…: the device's errors.
// Effects:   immutable after construction.
// Numerics:  weights keep their values.
// Threads:   the queue's owner.
#ifndef LETHE_SERVER_DEVICE_DEVICE_WEIGHTS_H_
#define LETHE_SERVER_DEVICE_DEVICE_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

#include "kernels/base/queue.h"
#include "kernels/causal_conv/causal_conv_batch.h"
#include "kernels/matmul/matmul_batch.h"
#include "server/model/model.h"
#include "server/model/weights.h"

namespace lethe {

struct DeviceConv {
  DeviceArray<float> taps;
  DeviceArray<float> bias;  // or empty
  int64_t num_channels = 0;
  int64_t width = 1;
  CausalConvPacked packed() const { return {num_channels, width, taps.data(), bias.data()}; }
};

struct DeviceMlpWeights {
  DeviceArray<float> norm;
  DeviceMatrix w_gate_up;
  DeviceMatrix w_down;
};

struct DeviceLocalWeights {
  DeviceArray<float> norm1;
  DeviceConv conv;
  DeviceMatrix w_qkv;
  DeviceMatrix wo;
  DeviceArray<float> alibi_slopes;
  DeviceMlpWeights mlp;
};

struct DevicePalimpsaWeights {
  DeviceMatrix w_b2;  // none without metaplasticity
  DeviceArray<float> dt_bias, decay_rate, b_gain, skip, out_norm;
};

struct DeviceGroupWeights {
  DeviceArray<float> logit_scales;  // ovq and sv: beta sqrt(K)
  DevicePalimpsaWeights palimpsa;
  DeviceMatrix w_u;              // vla, not for rls
  DeviceArray<float> read_gain;  // vla with read_norm rms
  DeviceArray<float> alibi_slopes;
};

// Where a palimpsa group's outputs lie in a row of w_gates; -1 for what it does without.
struct GateColumns {
  int64_t dt = -1;
  int64_t bs = -1;
  int64_t b1 = -1;
  int64_t z = -1;
};

struct DeviceMemoryWeights {
  DeviceArray<float> norm;
  DeviceMatrix w_qkv;
  DeviceConv conv;
  DeviceMatrix w_gates;  // none without palimpsa groups
  std::vector<GateColumns> gate_columns;
  std::vector<DeviceGroupWeights> groups;
  DeviceMatrix wo;
};

struct DeviceLayerWeights {
  std::variant<DeviceMlpWeights, DeviceLocalWeights, DeviceMemoryWeights> layer;
};

struct DeviceHeadWeights {
  DeviceArray<float> embed;
  DeviceArray<float> final_norm;
  DeviceMatrix lm_head;
};

// `bytes` grows by what was put on the device.
absl::StatusOr<std::unique_ptr<DeviceLayerWeights>> MakeDeviceLayer(Queue* queue,
                                                                    const LayerConfig& config,
                                                                    const LayerWeights& weights,
                                                                    size_t* bytes);
absl::StatusOr<std::unique_ptr<DeviceHeadWeights>> MakeDeviceHead(Queue* queue,
                                                                  const HeadWeights& weights,
                                                                  size_t* bytes);

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_DEVICE_WEIGHTS_H_
