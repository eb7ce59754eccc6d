#include "server/model/config.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/model/expected_tensors.h"
#include "server/model/strict_json.h"

namespace lethe {
namespace {

using nlohmann::json;

constexpr int64_t kMaxDim = 4096;
constexpr int64_t kMaxMlpWidth = 65536;
constexpr int64_t kMaxHeads = 64;
constexpr int64_t kMaxWindow = 1024;
constexpr double kMaxSlope = 1e6;

const std::vector<std::string>& KindNames() {
  static const auto* names =
      new std::vector<std::string>{"sv", "palimpsa_d", "palimpsa_m", "vla", "ovq", "window"};
  return *names;
}

absl::Status ReadVla(ObjectReader* reader, GroupConfig* group) {
  LETHE_ASSIGN_OR_RETURN(const size_t variant, reader->OneOf("variant", {"vla", "rls"}));
  group->rls = variant == 1;
  LETHE_ASSIGN_OR_RETURN(group->nudge, reader->Bool("nudge"));
  LETHE_ASSIGN_OR_RETURN(group->lambda0, reader->Real("lambda0", 1e-6, 1e6));
  LETHE_ASSIGN_OR_RETURN(const size_t norm, reader->OneOf("read_norm", {"rms", "paper"}));
  group->read_norm_paper = norm == 1;
  return absl::OkStatus();
}

absl::Status ReadSv(ObjectReader* reader, GroupConfig* group) {
  LETHE_ASSIGN_OR_RETURN(group->sigma, reader->Real("sigma", kSigmaMin, kSigmaMax));
  LETHE_ASSIGN_OR_RETURN(group->box_mass, reader->Real("box_mass", kBoxMassMin, kBoxMassMax));
  LETHE_ASSIGN_OR_RETURN(group->ridge, reader->Real("ridge", kRidgeMin, kRidgeMax));
  return absl::OkStatus();
}

absl::Status ReadPalimpsa(ObjectReader* reader, GroupConfig* group) {
  if (group->kind == MemoryKind::kPalimpsaM) {
    LETHE_ASSIGN_OR_RETURN(group->metaplasticity, reader->Bool("metaplasticity"));
    if (reader->Has("out_norm")) {
      LETHE_ASSIGN_OR_RETURN(const size_t norm, reader->OneOf("out_norm", {"head", "group"}));
      group->out_norm_group = norm == 1;
    }
  }
  LETHE_ASSIGN_OR_RETURN(group->rank, reader->Int("rank", 1, 256));
  return absl::OkStatus();
}

absl::Status ReadOvq(ObjectReader* reader, GroupConfig* group) {
  LETHE_ASSIGN_OR_RETURN(group->slots, reader->Int("slots", kSlotsMin, kSlotsMax));
  return absl::OkStatus();
}

absl::Status ReadWindow(ObjectReader* reader, GroupConfig* group) {
  LETHE_ASSIGN_OR_RETURN(group->window, reader->Int("window", 1, kMaxWindow));
  LETHE_ASSIGN_OR_RETURN(group->alibi_slopes,
                         reader->Reals("alibi_slopes", group->heads, 0.0, kMaxSlope));
  return absl::OkStatus();
}

absl::Status ReadKindOptions(ObjectReader* reader, GroupConfig* group) {
  switch (group->kind) {
    case MemoryKind::kSv:
      return ReadSv(reader, group);
    case MemoryKind::kPalimpsaD:
    case MemoryKind::kPalimpsaM:
      return ReadPalimpsa(reader, group);
    case MemoryKind::kVla:
      return ReadVla(reader, group);
    case MemoryKind::kOvq:
      return ReadOvq(reader, group);
    case MemoryKind::kWindow:
      return ReadWindow(reader, group);
  }
  return absl::OkStatus();
}

absl::StatusOr<GroupConfig> ReadGroup(const json& value, const std::string& path) {
  LETHE_ASSIGN_OR_RETURN(ObjectReader reader, ObjectReader::Open(value, path));
  GroupConfig group;
  LETHE_ASSIGN_OR_RETURN(const size_t kind, reader.OneOf("kind", KindNames()));
  group.kind = static_cast<MemoryKind>(kind);
  LETHE_ASSIGN_OR_RETURN(group.heads, reader.Int("heads", 1, kMaxHeads));
  LETHE_ASSIGN_OR_RETURN(group.key_dim, reader.MultipleOf8("key_dim", 8, kMaxDim));
  LETHE_ASSIGN_OR_RETURN(group.value_dim, reader.MultipleOf8("value_dim", 8, kMaxDim));
  LETHE_RETURN_IF_ERROR(ReadKindOptions(&reader, &group));
  LETHE_RETURN_IF_ERROR(reader.Finish());
  return group;
}

absl::StatusOr<LayerConfig> ReadLocal(ObjectReader* reader) {
  LocalLayerConfig layer;
  LETHE_ASSIGN_OR_RETURN(layer.heads, reader->Int("heads", 1, kMaxHeads));
  LETHE_ASSIGN_OR_RETURN(layer.head_dim, reader->MultipleOf8("head_dim", 8, kMaxDim));
  LETHE_ASSIGN_OR_RETURN(layer.window, reader->Int("window", 1, kMaxWindow));
  LETHE_ASSIGN_OR_RETURN(layer.conv_width, reader->Int("conv_width", 1, 8));
  LETHE_ASSIGN_OR_RETURN(layer.mlp_width, reader->MultipleOf8("mlp_width", 8, kMaxMlpWidth));
  LETHE_ASSIGN_OR_RETURN(layer.alibi_slopes,
                         reader->Reals("alibi_slopes", layer.heads, 0.0, kMaxSlope));
  return LayerConfig(std::move(layer));
}

absl::StatusOr<LayerConfig> ReadMemory(ObjectReader* reader) {
  MemoryLayerConfig layer;
  LETHE_ASSIGN_OR_RETURN(layer.conv_width, reader->Int("conv_width", 1, 8));
  LETHE_ASSIGN_OR_RETURN(const json* groups, reader->Array("groups", 1, 16));
  for (size_t i = 0; i < groups->size(); ++i) {
    const std::string path = absl::StrCat(reader->PathOf("groups"), "[", i, "]");
    LETHE_ASSIGN_OR_RETURN(GroupConfig group, ReadGroup((*groups)[i], path));
    layer.groups.push_back(std::move(group));
  }
  return LayerConfig(std::move(layer));
}

absl::StatusOr<LayerConfig> ReadLayer(const json& value, const std::string& path) {
  LETHE_ASSIGN_OR_RETURN(ObjectReader reader, ObjectReader::Open(value, path));
  LETHE_ASSIGN_OR_RETURN(const size_t type, reader.OneOf("type", {"local", "memory", "mlp"}));
  absl::StatusOr<LayerConfig> layer = MlpLayerConfig{};
  if (type == 0) {
    layer = ReadLocal(&reader);
  } else if (type == 1) {
    layer = ReadMemory(&reader);
  } else {
    LETHE_ASSIGN_OR_RETURN(const int64_t width, reader.MultipleOf8("mlp_width", 8, kMaxMlpWidth));
    layer = LayerConfig(MlpLayerConfig{width});
  }
  LETHE_RETURN_IF_ERROR(layer.status());
  LETHE_RETURN_IF_ERROR(reader.Finish());
  return layer;
}

std::optional<size_t> BankOf(const std::vector<LayerConfig>& layers) {
  std::optional<size_t> bank;
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool is_memory = std::holds_alternative<MemoryLayerConfig>(layers[i]);
    const bool above_bank = bank.has_value();
    if (above_bank && !std::holds_alternative<MlpLayerConfig>(layers[i])) return std::nullopt;
    if (is_memory) bank = i;
  }
  return bank;
}

// The receptive field counts up to the first memory layer, its own convolutions included.
void DeriveFacts(ModelConfig* config) {
  bool below_is_local = true;
  config->local_receptive_field = 1;
  for (LayerConfig& layer : config->layers) {
    if (auto* memory = std::get_if<MemoryLayerConfig>(&layer)) {
      memory->bounded = below_is_local;
    }
    if (below_is_local) config->local_receptive_field += LocalReach(layer);
    below_is_local = below_is_local && !std::holds_alternative<MemoryLayerConfig>(layer);
  }
  config->bank = BankOf(config->layers);
  config->num_parameters = 0;
  for (const TensorSpec& tensor : ExpectedTensors(*config)) {
    int64_t count = 1;
    for (const int64_t size : tensor.shape) count *= size;
    config->num_parameters += count;
  }
}

}  // namespace

absl::string_view MemoryKindName(MemoryKind kind) { return KindNames()[static_cast<size_t>(kind)]; }

int64_t LocalReach(const LayerConfig& layer) {
  if (const auto* local = std::get_if<LocalLayerConfig>(&layer)) {
    return local->window - 1 + local->conv_width - 1;
  }
  if (const auto* memory = std::get_if<MemoryLayerConfig>(&layer)) return memory->conv_width - 1;
  return 0;
}

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view text) {
  constexpr size_t kMaxConfigBytes = size_t{1} << 20;
  if (text.size() > kMaxConfigBytes) {
    return absl::InvalidArgumentError("config.json must be at most 1048576 bytes");
  }
  LETHE_ASSIGN_OR_RETURN(const json document, ParseStrictJson(text, "config.json"));
  LETHE_ASSIGN_OR_RETURN(ObjectReader reader, ObjectReader::Open(document, ""));
  ModelConfig config;
  LETHE_RETURN_IF_ERROR(reader.OneOf("format", {"lethe-model/1"}).status());
  LETHE_ASSIGN_OR_RETURN(config.name, reader.Name("name", 64));
  LETHE_RETURN_IF_ERROR(reader.OneOf("tokenizer", {"bytes"}).status());
  config.tokenizer = "bytes";
  LETHE_ASSIGN_OR_RETURN(config.vocab_size, reader.Int("vocab_size", 1, 65536));
  LETHE_ASSIGN_OR_RETURN(config.end_of_text, reader.Int("end_of_text", -1, config.vocab_size - 1));
  LETHE_ASSIGN_OR_RETURN(config.width, reader.MultipleOf8("width", 8, kMaxDim));
  LETHE_ASSIGN_OR_RETURN(config.max_tokens, reader.Int("max_tokens", 1, int64_t{1} << 24));
  LETHE_ASSIGN_OR_RETURN(config.norm_eps, reader.Real("norm_eps", 1e-12, 1.0));
  LETHE_ASSIGN_OR_RETURN(const json* layers, reader.Array("layers", 1, 64));
  for (size_t i = 0; i < layers->size(); ++i) {
    LETHE_ASSIGN_OR_RETURN(LayerConfig layer,
                           ReadLayer((*layers)[i], absl::StrCat("layers[", i, "]")));
    config.layers.push_back(std::move(layer));
  }
  LETHE_RETURN_IF_ERROR(reader.Finish());
  DeriveFacts(&config);
  return config;
}

}  // namespace lethe
