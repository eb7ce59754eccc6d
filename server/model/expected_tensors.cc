#include "server/model/expected_tensors.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace lethe {
namespace {

class SpecList {
 public:
  void Add(std::string name, std::vector<int64_t> shape) {
    specs_.push_back({std::move(name), std::move(shape)});
  }
  std::vector<TensorSpec> Take() { return std::move(specs_); }

 private:
  std::vector<TensorSpec> specs_;
};

void AddMlp(const std::string& prefix, int64_t width, int64_t mlp_width, SpecList* specs) {
  specs->Add(prefix + "w_gate.weight", {mlp_width, width});
  specs->Add(prefix + "w_up.weight", {mlp_width, width});
  specs->Add(prefix + "w_down.weight", {width, mlp_width});
}

void AddLocal(const std::string& prefix, int64_t width, const LocalLayerConfig& layer,
              SpecList* specs) {
  const int64_t inner = layer.heads * layer.head_dim;
  specs->Add(prefix + "norm1.weight", {width});
  specs->Add(prefix + "conv.weight", {width, layer.conv_width});
  specs->Add(prefix + "wq.weight", {inner, width});
  specs->Add(prefix + "wk.weight", {inner, width});
  specs->Add(prefix + "wv.weight", {inner, width});
  specs->Add(prefix + "wo.weight", {width, inner});
  specs->Add(prefix + "norm2.weight", {width});
  AddMlp(prefix, width, layer.mlp_width, specs);
}

void AddPalimpsa(const std::string& prefix, int64_t width, const GroupConfig& group,
                 SpecList* specs) {
  const int64_t heads = group.heads;
  specs->Add(prefix + "w_dt.weight", {heads, width});
  specs->Add(prefix + "dt_bias", {heads});
  specs->Add(prefix + "A_log", {heads});
  if (group.kind == MemoryKind::kPalimpsaD) specs->Add(prefix + "w_bs.weight", {heads, width});
  specs->Add(prefix + "w_b1.weight", {group.rank, width});
  specs->Add(prefix + "w_b2.weight", {heads * group.value_dim, group.rank});
  specs->Add(prefix + "b_scale", {heads});
  specs->Add(prefix + "D", {heads});
  specs->Add(prefix + "out_norm.weight", {(group.out_norm_group ? heads : 1) * group.value_dim});
  specs->Add(prefix + "w_z.weight", {heads * group.value_dim, width});
  if (group.kind == MemoryKind::kPalimpsaM) {
    specs->Add(prefix + "conv_q.bias", {heads * group.key_dim});
    specs->Add(prefix + "conv_k.bias", {heads * group.key_dim});
    specs->Add(prefix + "conv_v.bias", {heads * group.value_dim});
  }
}

void AddGroup(const std::string& prefix, int64_t width, int64_t conv_width,
              const GroupConfig& group, SpecList* specs) {
  const int64_t keys = group.heads * group.key_dim;
  const int64_t values = group.heads * group.value_dim;
  specs->Add(prefix + "wq.weight", {keys, width});
  specs->Add(prefix + "wk.weight", {keys, width});
  specs->Add(prefix + "wv.weight", {values, width});
  specs->Add(prefix + "conv_q.weight", {keys, conv_width});
  specs->Add(prefix + "conv_k.weight", {keys, conv_width});
  specs->Add(prefix + "conv_v.weight", {values, conv_width});
  switch (group.kind) {
    case MemoryKind::kSv:
    case MemoryKind::kOvq:
      specs->Add(prefix + "beta", {group.heads});
      break;
    case MemoryKind::kPalimpsaD:
    case MemoryKind::kPalimpsaM:
      AddPalimpsa(prefix, width, group, specs);
      break;
    case MemoryKind::kVla:
      if (!group.rls) specs->Add(prefix + "w_u.weight", {keys, keys});
      if (!group.read_norm_paper) specs->Add(prefix + "read_gain", {group.value_dim});
      break;
    case MemoryKind::kWindow:
      break;
  }
}

void AddMemory(const std::string& prefix, int64_t width, const MemoryLayerConfig& layer,
               SpecList* specs) {
  specs->Add(prefix + "norm.weight", {width});
  int64_t values = 0;
  for (size_t g = 0; g < layer.groups.size(); ++g) {
    AddGroup(absl::StrCat(prefix, "groups.", g, "."), width, layer.conv_width, layer.groups[g],
             specs);
    values += layer.groups[g].heads * layer.groups[g].value_dim;
  }
  specs->Add(prefix + "wo.weight", {width, values});
}

}  // namespace

std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config) {
  SpecList specs;
  specs.Add("embed.weight", {config.vocab_size, config.width});
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = absl::StrCat("layers.", i, ".");
    if (const auto* local = std::get_if<LocalLayerConfig>(&config.layers[i])) {
      AddLocal(prefix, config.width, *local, &specs);
    } else if (const auto* mlp = std::get_if<MlpLayerConfig>(&config.layers[i])) {
      specs.Add(prefix + "norm.weight", {config.width});
      AddMlp(prefix, config.width, mlp->mlp_width, &specs);
    } else {
      AddMemory(prefix, config.width, std::get<MemoryLayerConfig>(config.layers[i]), &specs);
    }
  }
  specs.Add("final_norm.weight", {config.width});
  specs.Add("lm_head.weight", {config.vocab_size, config.width});
  return specs.Take();
}

}  // namespace lethe
