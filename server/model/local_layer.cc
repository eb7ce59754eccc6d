// The local and the mlp layer (docs/model-format.md 2.1, 2.2).
#include <bit>

#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "kernels/math/math.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/window_attention/window_attention.h"
#include "server/model/layer_state.h"

namespace lethe {
namespace {

class LocalSnapshot final : public LayerSnapshot {
 public:
  LocalSnapshot(const CausalConvState& conv_state, const WindowAttentionState& window_state)
      : conv(conv_state), window(window_state) {}
  size_t state_bytes() const override { return conv.state_bytes() + window.state_bytes(); }
  void AppendTo(ByteWriter* out) const override {
    conv.AppendTo(out);
    window.AppendTo(out);
  }

  const CausalConvState conv;
  const WindowAttentionState window;
};

class LocalLayerState final : public LayerState {
 public:
  LocalLayerState(const LocalLayerConfig& config, const LocalWeights& weights, float norm_eps)
      : weights_(&weights),
        norm_eps_(norm_eps),
        inner_(config.heads * config.head_dim),
        conv_(weights.conv.num_channels(), weights.conv.width()),
        window_(
            WindowAttentionShape{config.heads, config.head_dim, config.head_dim, config.window}) {}

  absl::Status Forward(int64_t count, absl::Span<float> x, Workspace* workspace) override {
    const auto size = static_cast<int64_t>(x.size());
    const absl::Span<float> normed = workspace->h(size);
    const absl::Span<float> h = workspace->y(size);
    RmsNorm(x, weights_->norm1, norm_eps_, normed);
    CausalConv(weights_->conv, normed, &conv_, h);
    const absl::Span<float> q = workspace->inner(0, count * inner_);
    const absl::Span<float> k = workspace->inner(1, count * inner_);
    const absl::Span<float> v = workspace->inner(2, count * inner_);
    const absl::Span<float> o = workspace->inner(3, count * inner_);
    Matmul(h, count, weights_->wq, q);
    Matmul(h, count, weights_->wk, k);
    Matmul(h, count, weights_->wv, v);
    if (!AllFinite(q) || !AllFinite(k) || !AllFinite(v)) {
      return absl::InternalError("an activation of a local layer is not finite");
    }
    WindowAttention(weights_->alibi_slopes, q, k, v, count, &window_, o);
    const absl::Span<float> y = workspace->y(size);
    Matmul(o, count, weights_->wo, y);
    AddInPlace(y, x);
    AddSwiglu(weights_->mlp, norm_eps_, count, x, workspace);
    return absl::OkStatus();
  }

  std::unique_ptr<LayerSnapshot> Snapshot() const override {
    return std::make_unique<LocalSnapshot>(conv_, window_);
  }
  absl::Status Restore(const LayerSnapshot& snapshot) override {
    const auto* local = dynamic_cast<const LocalSnapshot*>(&snapshot);
    if (local == nullptr) return absl::InvalidArgumentError("snapshot of another layer kind");
    if (!FaultActive(Fault::kOldConvolutionTailKept)) conv_ = local->conv;
    window_ = local->window;
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<LayerSnapshot>> ReadSnapshot(ByteReader* in) const override {
    CausalConvState conv(conv_.num_channels(), conv_.width());
    WindowAttentionState window(window_.shape());
    LETHE_RETURN_IF_ERROR(conv.Read(in));
    LETHE_RETURN_IF_ERROR(window.Read(in));
    return std::make_unique<LocalSnapshot>(conv, window);
  }
  std::unique_ptr<LayerState> Clone() const override {
    return std::make_unique<LocalLayerState>(*this);
  }
  void AppendDigestParts(const std::string& prefix, audit::StateParts* parts) const override {
    ByteWriter conv;
    conv_.AppendTo(&conv);
    parts->Add(prefix + ".conv", conv.bytes());
    ByteWriter window;
    window_.AppendTo(&window);
    parts->Add(prefix + ".window", window.bytes());
  }
  size_t state_bytes() const override { return conv_.state_bytes() + window_.state_bytes(); }

 private:
  const LocalWeights* weights_;
  float norm_eps_;
  int64_t inner_;
  CausalConvState conv_;
  WindowAttentionState window_;
};

class MlpSnapshot final : public LayerSnapshot {
 public:
  size_t state_bytes() const override { return 0; }
  void AppendTo(ByteWriter* /*out*/) const override {}
};

class MlpLayerState final : public LayerState {
 public:
  MlpLayerState(const MlpWeights& weights, float norm_eps)
      : weights_(&weights), norm_eps_(norm_eps) {}

  absl::Status Forward(int64_t count, absl::Span<float> x, Workspace* workspace) override {
    AddSwiglu(*weights_, norm_eps_, count, x, workspace);
    return absl::OkStatus();
  }
  std::unique_ptr<LayerSnapshot> Snapshot() const override {
    return std::make_unique<MlpSnapshot>();
  }
  absl::Status Restore(const LayerSnapshot& /*snapshot*/) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<LayerSnapshot>> ReadSnapshot(ByteReader* /*in*/) const override {
    return std::make_unique<MlpSnapshot>();
  }
  std::unique_ptr<LayerState> Clone() const override {
    return std::make_unique<MlpLayerState>(*this);
  }
  void AppendDigestParts(const std::string& /*prefix*/,
                         audit::StateParts* /*parts*/) const override {}
  size_t state_bytes() const override { return 0; }

 private:
  const MlpWeights* weights_;
  float norm_eps_;
};

}  // namespace

void AddSwiglu(const MlpWeights& weights, float norm_eps, int64_t count, absl::Span<float> x,
               Workspace* workspace) {
  const auto size = static_cast<int64_t>(x.size());
  const absl::Span<float> h = workspace->h(size);
  RmsNorm(x, weights.norm, norm_eps, h);
  const int64_t hidden = count * weights.w_gate.num_outputs();
  const absl::Span<float> gate = workspace->inner(0, hidden);
  const absl::Span<float> up = workspace->inner(1, hidden);
  Matmul(h, count, weights.w_gate, gate);
  Matmul(h, count, weights.w_up, up);
  Silu(gate, gate);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i];
  const absl::Span<float> y = workspace->y(size);
  Matmul(gate, count, weights.w_down, y);
  AddInPlace(y, x);
}

void AddInPlace(absl::Span<const float> y, absl::Span<float> x) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

bool AllFinite(absl::Span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000u;
  uint32_t bad = 0;
  for (const float value : values) {
    bad |= static_cast<uint32_t>((std::bit_cast<uint32_t>(value) & kExponent) == kExponent);
  }
  return bad == 0;
}

std::unique_ptr<LayerState> MakeLocalLayerState(const LocalLayerConfig& config,
                                                const LocalWeights& weights, float norm_eps) {
  return std::make_unique<LocalLayerState>(config, weights, norm_eps);
}

std::unique_ptr<LayerState> MakeMlpLayerState(const MlpWeights& weights, float norm_eps) {
  return std::make_unique<MlpLayerState>(weights, norm_eps);
}

}  // namespace lethe
