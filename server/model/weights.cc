#include "server/model/weights.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/math/math.h"

namespace lethe {
namespace {

// The tensors under one prefix.
class Source {
 public:
  Source(const TensorMap& tensors, std::string prefix)
      : tensors_(tensors), prefix_(std::move(prefix)) {}

  const Tensor& Get(const char* name) const {
    const auto found = tensors_.find(prefix_ + name);
    LETHE_CHECK(found != tensors_.end());
    return found->second;
  }
  std::vector<float> Vector(const char* name) const { return Get(name).values; }
  PackedMatrix Matrix(const char* name) const {
    const Tensor& tensor = Get(name);
    return PackedMatrix::Pack(tensor.values, tensor.shape[0], tensor.shape[1]);
  }
  CausalConvWeights Conv(const char* weight, const char* bias) const {
    const Tensor& tensor = Get(weight);
    const absl::Span<const float> bias_values =
        bias == nullptr ? absl::Span<const float>() : Get(bias).values;
    return CausalConvWeights(tensor.values, bias_values, tensor.shape[1]);
  }

 private:
  const TensorMap& tensors_;
  std::string prefix_;
};

std::vector<float> ToFloats(const std::vector<double>& values) {
  std::vector<float> floats;
  floats.reserve(values.size());
  for (const double value : values) floats.push_back(static_cast<float>(value));
  return floats;
}

MlpWeights MakeMlp(const Source& source, const char* norm) {
  return {source.Vector(norm), source.Matrix("w_gate.weight"), source.Matrix("w_up.weight"),
          source.Matrix("w_down.weight")};
}

LocalWeights MakeLocal(const LocalLayerConfig& config, const Source& source) {
  LocalWeights weights;
  weights.norm1 = source.Vector("norm1.weight");
  weights.conv = source.Conv("conv.weight", nullptr);
  weights.wq = source.Matrix("wq.weight");
  weights.wk = source.Matrix("wk.weight");
  weights.wv = source.Matrix("wv.weight");
  weights.wo = source.Matrix("wo.weight");
  weights.alibi_slopes = ToFloats(config.alibi_slopes);
  weights.mlp = MakeMlp(source, "norm2.weight");
  return weights;
}

PalimpsaWeights MakePalimpsa(MemoryKind kind, const Source& source) {
  PalimpsaWeights weights;
  weights.w_dt = source.Matrix("w_dt.weight");
  if (kind == MemoryKind::kPalimpsaD) weights.w_bs = source.Matrix("w_bs.weight");
  weights.w_b1 = source.Matrix("w_b1.weight");
  weights.w_b2 = source.Matrix("w_b2.weight");
  weights.w_z = source.Matrix("w_z.weight");
  weights.dt_bias = source.Vector("dt_bias");
  for (const float a_log : source.Vector("A_log")) weights.decay_rate.push_back(-Exp(a_log));
  for (const float scale : source.Vector("b_scale")) weights.b_gain.push_back(Softplus(scale));
  weights.skip = source.Vector("D");
  weights.out_norm = source.Vector("out_norm.weight");
  return weights;
}

GroupWeights MakeGroup(const GroupConfig& config, const Source& source) {
  GroupWeights weights;
  weights.wq = source.Matrix("wq.weight");
  weights.wk = source.Matrix("wk.weight");
  weights.wv = source.Matrix("wv.weight");
  const bool has_bias = config.kind == MemoryKind::kPalimpsaM;
  weights.conv_q = source.Conv("conv_q.weight", has_bias ? "conv_q.bias" : nullptr);
  weights.conv_k = source.Conv("conv_k.weight", has_bias ? "conv_k.bias" : nullptr);
  weights.conv_v = source.Conv("conv_v.weight", has_bias ? "conv_v.bias" : nullptr);
  switch (config.kind) {
    case MemoryKind::kSv:
    case MemoryKind::kOvq:
      weights.beta = source.Vector("beta");
      break;
    case MemoryKind::kPalimpsaD:
    case MemoryKind::kPalimpsaM:
      weights.palimpsa = MakePalimpsa(config.kind, source);
      break;
    case MemoryKind::kVla:
      if (!config.rls) weights.w_u = source.Matrix("w_u.weight");
      if (!config.read_norm_paper) weights.read_gain = source.Vector("read_gain");
      break;
    case MemoryKind::kWindow:
      weights.alibi_slopes = ToFloats(config.alibi_slopes);
      break;
  }
  return weights;
}

}  // namespace

std::unique_ptr<LayerWeights> MakeLayerWeights(const ModelConfig& config, size_t layer_index,
                                               const TensorMap& tensors) {
  const std::string prefix = absl::StrCat("layers.", layer_index, ".");
  const Source source(tensors, prefix);
  const LayerConfig& layer = config.layers[layer_index];
  auto weights = std::make_unique<LayerWeights>();
  if (const auto* local = std::get_if<LocalLayerConfig>(&layer)) {
    weights->layer = MakeLocal(*local, source);
  } else if (std::holds_alternative<MlpLayerConfig>(layer)) {
    weights->layer = MakeMlp(source, "norm.weight");
  } else {
    const auto& memory = std::get<MemoryLayerConfig>(layer);
    MemoryWeights memory_weights;
    memory_weights.norm = source.Vector("norm.weight");
    for (size_t g = 0; g < memory.groups.size(); ++g) {
      memory_weights.groups.push_back(
          MakeGroup(memory.groups[g], Source(tensors, absl::StrCat(prefix, "groups.", g, "."))));
    }
    memory_weights.wo = source.Matrix("wo.weight");
    weights->layer = std::move(memory_weights);
  }
  return weights;
}

std::unique_ptr<HeadWeights> MakeHeadWeights(const TensorMap& tensors) {
  const Source source(tensors, "");
  auto weights = std::make_unique<HeadWeights>();
  weights->embed = source.Vector("embed.weight");
  weights->final_norm = source.Vector("final_norm.weight");
  weights->lm_head = source.Matrix("lm_head.weight");
  return weights;
}

}  // namespace lethe
