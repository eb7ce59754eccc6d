#include "server/bench/device_models.h"

#include <bit>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "kernels/base/status_macros.h"
#include "server/model/synthetic_model.h"

namespace lethe::bench {
namespace {

std::string Config(const std::string& name, int64_t vocab_size, int64_t width,
                   const std::vector<std::string>& layers) {
  return absl::StrCat(R"({"format": "lethe-model/1", "name": ")", name,
                      R"(", "tokenizer": "bytes", "vocab_size": )", vocab_size,
                      R"(, "end_of_text": 0, "width": )", width,
                      R"(, "max_tokens": 65536, "norm_eps": 1e-6, "layers": [)",
                      absl::StrJoin(layers, ","), "]}");
}

std::string Slopes(int64_t heads) {
  return absl::StrCat(
      "[", absl::StrJoin(std::vector<double>(static_cast<size_t>(heads), 0.05), ","), "]");
}

std::string Local(int64_t heads, int64_t window, int64_t mlp_width) {
  return absl::StrCat(R"({"type": "local", "heads": )", heads, R"(, "head_dim": 64, "window": )",
                      window, R"(, "conv_width": 4, "mlp_width": )", mlp_width,
                      R"(, "alibi_slopes": )", Slopes(heads), "}");
}

std::string Group(const std::string& kind, int64_t heads, int64_t key_dim,
                  const std::string& options) {
  return absl::StrCat(R"({"kind": ")", kind, R"(", "heads": )", heads, R"(, "key_dim": )", key_dim,
                      R"(, "value_dim": 64, )", options, "}");
}

std::string Memory(const std::vector<std::string>& groups) {
  return absl::StrCat(R"({"type": "memory", "conv_width": 4, "groups": [)",
                      absl::StrJoin(groups, ","), "]}");
}

constexpr char kVla[] = R"("variant": "vla", "nudge": false, "lambda0": 0.125, "read_norm": "rms")";

std::string TinyConfig() {
  const std::string memory = Memory(
      {Group("palimpsa_d", 1, 64, R"("rank": 16)"),
       Group("palimpsa_m", 1, 64, R"("rank": 16, "metaplasticity": true)"),
       Group("vla", 1, 64, kVla), Group("ovq", 2, 64, R"("slots": 512)"),
       Group("window", 1, 64, absl::StrCat(R"("window": 32, "alibi_slopes": )", Slopes(1)))});
  return Config("tiny", 256, 256,
                {Local(4, 64, 512), memory, R"({"type": "mlp", "mlp_width": 512})"});
}

// lethe-tiny.
std::string SvConfig() {
  const std::string memory =
      Memory({Group("sv", 1, 64, R"("sigma": 1.0, "box_mass": 256, "ridge": 0.00048828125)"),
              Group("palimpsa_d", 4, 64, R"("rank": 16)"), Group("vla", 2, 64, kVla),
              Group("ovq", 4, 64, R"("slots": 512)")});
  const std::string mlp = R"({"type": "mlp", "mlp_width": 512})";
  std::vector<std::string> layers(4, Local(4, 64, 512));
  layers.insert(layers.end(), {memory, mlp, mlp});
  return Config("sv", 256, 256, layers);
}

std::string HybridConfig() {
  std::vector<std::string> layers;
  for (int i = 0; i < 12; ++i) {
    layers.push_back(Local(16, 64, 2816));
    layers.push_back(Memory(
        {Group("palimpsa_d", 4, 64, R"("rank": 16)"), Group("vla", 4, 64, kVla),
         Group("ovq", 4, 64, R"("slots": 512)"),
         Group("window", 4, 64, absl::StrCat(R"("window": 256, "alibi_slopes": )", Slopes(4)))}));
  }
  return Config("hybrid", 32000, 1024, layers);
}

std::string Mamba2Config() {
  const std::string layer = Memory(
      {Group("palimpsa_m", 24, 128, R"("rank": 1, "metaplasticity": false, "out_norm": "group")")});
  return Config("mamba2", 50280, 768, std::vector<std::string>(24, layer));
}

}  // namespace

std::vector<DeviceBenchModel> DeviceBenchModels() {
  return {{"tiny", TinyConfig()},
          {"sv", SvConfig()},
          {"hybrid", HybridConfig()},
          {"mamba2", Mamba2Config()}};
}

absl::StatusOr<std::shared_ptr<const Model>> MakeBf16Model(const std::string& config_json) {
  LETHE_ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(config_json));
  TensorMap tensors = SyntheticTensors(config, 1);
  for (auto& [name, tensor] : tensors) {
    for (float& value : tensor.values) {
      value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffff0000u);
    }
  }
  return Model::Create(config, tensors);
}

}  // namespace lethe::bench
