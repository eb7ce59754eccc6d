// The local and the mlp layer on a device (docs/model-format.md 2.1, 2.2).
#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/elementwise/columns.h"
#include "kernels/rms_norm/residual_norm.h"
#include "kernels/rms_norm/rms_norm_batch.h"
#include "kernels/window_attention/window_attention_batch.h"
#include "server/device/device_layer.h"

namespace lethe {
namespace {

using elementwise::Map;
using elementwise::SplitPart;

// y = w_down (silu(w_gate h) * (w_up h)), h = rms_norm(x + y, norm).
class SwigluBlock {
 public:
  SwigluBlock(const LayerSetup& setup, bool is_first, const DeviceMlpWeights& weights)
      : weights_(&weights),
        is_first_(is_first),
        width_(setup.width),
        norm_eps_(setup.norm_eps),
        num_hidden_(weights.w_down.num_inputs()),
        h_(setup.plan->Rows(width_)),
        gate_up_(setup.plan->Rows(2 * num_hidden_)),
        hidden_(setup.plan->Rows(num_hidden_)) {}

  absl::Status Forward(const ForwardBatch& batch) const {
    Queue* queue = batch.queue;
    const int64_t rows = batch.sequences.num_tokens;
    LETHE_RETURN_IF_ERROR(NormResidual(batch, is_first_, weights_->norm, norm_eps_, h_));
    LETHE_RETURN_IF_ERROR(
        MatmulBatch(queue, h_, rows, weights_->w_gate_up, kActivationTerms, gate_up_));
    LETHE_RETURN_IF_ERROR(
        elementwise::SwigluColumns(queue, gate_up_, {rows, num_hidden_}, hidden_));
    return MatmulBatch(queue, hidden_, rows, weights_->w_down, kActivationTerms, batch.y);
  }

 private:
  const DeviceMlpWeights* weights_;
  bool is_first_;
  int64_t width_;
  float norm_eps_;
  int64_t num_hidden_;
  float* h_;
  float* gate_up_;
  float* hidden_;
};

class MlpLayer final : public DeviceLayer {
 public:
  MlpLayer(const LayerSetup& setup, const DeviceMlpWeights& weights)
      : block_(setup, setup.is_first, weights) {}
  absl::Status Forward(const ForwardBatch& batch) const override { return block_.Forward(batch); }

 private:
  SwigluBlock block_;
};

class LocalLayer final : public DeviceLayer {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceLayer>> Create(const LayerSetup& setup,
                                                             const LocalLayerConfig& config,
                                                             const DeviceLocalWeights& weights) {
    std::unique_ptr<LocalLayer> layer(new LocalLayer(setup, config, weights));
    std::vector<SplitPart> parts;
    int64_t begin = 0;
    for (float* to : {layer->q_, layer->k_, layer->v_}) {
      parts.push_back({begin, layer->inner_, Map::kNone, nullptr, nullptr, to});
      begin += layer->inner_;
    }
    LETHE_ASSIGN_OR_RETURN(layer->parts_, DeviceArray<SplitPart>::From(setup.queue, parts));
    return layer;
  }

  absl::Status Forward(const ForwardBatch& batch) const override {
    Queue* queue = batch.queue;
    const int64_t rows = batch.sequences.num_tokens;
    LETHE_RETURN_IF_ERROR(NormResidual(batch, is_first_, weights_->norm1, norm_eps_, normed_));
    LETHE_RETURN_IF_ERROR(
        CausalConvBatch(queue, weights_->conv.packed(), normed_, batch.sequences, conv_pool_, h_));
    LETHE_RETURN_IF_ERROR(MatmulBatch(queue, h_, rows, weights_->w_qkv, kActivationTerms, qkv_));
    LETHE_RETURN_IF_ERROR(elementwise::SplitColumns(queue, qkv_, {rows, 3 * inner_}, parts_.data(),
                                                    3, inner_, batch.is_bad));
    LETHE_RETURN_IF_ERROR(WindowAttentionBatch(queue, shape_, weights_->alibi_slopes.data(), q_, k_,
                                               v_, batch.sequences, window_pool_, o_));
    LETHE_RETURN_IF_ERROR(MatmulBatch(queue, o_, rows, weights_->wo, kActivationTerms, batch.y));
    return mlp_.Forward(batch);
  }

 private:
  LocalLayer(const LayerSetup& setup, const LocalLayerConfig& config,
             const DeviceLocalWeights& weights)
      : weights_(&weights),
        shape_{config.heads, config.head_dim, config.head_dim, config.window},
        is_first_(setup.is_first),
        width_(setup.width),
        norm_eps_(setup.norm_eps),
        inner_(config.heads * config.head_dim),
        conv_pool_(setup.arrays->Floats(setup.parts->own[0])),
        window_pool_{setup.arrays->Floats(setup.parts->own[1]),
                     setup.arrays->Floats(setup.parts->own[2])},
        normed_(setup.plan->Rows(width_)),
        h_(setup.plan->Rows(width_)),
        qkv_(setup.plan->Rows(3 * inner_)),
        q_(setup.plan->Rows(inner_)),
        k_(setup.plan->Rows(inner_)),
        v_(setup.plan->Rows(inner_)),
        o_(setup.plan->Rows(inner_)),
        mlp_(setup, false, weights.mlp) {}

  const DeviceLocalWeights* weights_;
  WindowAttentionShape shape_;
  bool is_first_;
  int64_t width_;
  float norm_eps_;
  int64_t inner_;
  float* conv_pool_;
  WindowAttentionPool window_pool_;
  float* normed_;
  float* h_;
  float* qkv_;
  float* q_;
  float* k_;
  float* v_;
  float* o_;
  SwigluBlock mlp_;
  DeviceArray<SplitPart> parts_;
};

}  // namespace

absl::Status NormResidual(const ForwardBatch& batch, bool is_first, const DeviceArray<float>& gain,
                          float norm_eps, float* normed) {
  const int64_t rows = batch.sequences.num_tokens;
  const auto width = static_cast<int64_t>(gain.size());
  if (is_first) {
    return RmsNormBatch(batch.queue, batch.x, rows, gain.data(), width, norm_eps, normed);
  }
  return AddNormBatch(batch.queue, batch.y, rows, gain.data(), width, norm_eps, batch.x, normed);
}

absl::StatusOr<std::unique_ptr<DeviceLayer>> MakeLocalLayer(const LayerSetup& setup,
                                                            const LocalLayerConfig& config,
                                                            const DeviceLocalWeights& weights) {
  return LocalLayer::Create(setup, config, weights);
}

absl::StatusOr<std::unique_ptr<DeviceLayer>> MakeMlpLayer(const LayerSetup& setup,
                                                          const DeviceMlpWeights& weights) {
  return std::make_unique<MlpLayer>(setup, weights);
}

}  // namespace lethe
