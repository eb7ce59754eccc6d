#include "tests/testing/small_model.h"

#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "server/model/config.h"
#include "server/model/safetensors.h"
#include "server/model/synthetic_model.h"

namespace lethe::testing {
namespace {

constexpr char kHead[] = R"({"format": "lethe-model/1", "name": "small", "tokenizer": "bytes",
  "vocab_size": 32, "end_of_text": 0, "width": 16, "max_tokens": 16384, "norm_eps": 1e-6,
  "layers": [)";

constexpr char kLocal[] = R"({"type": "local", "heads": 2, "head_dim": 8, "window": 9,
  "conv_width": 4, "mlp_width": 16, "alibi_slopes": [0.05, 0.25]})";

constexpr char kMlp[] = R"({"type": "mlp", "mlp_width": 16})";

constexpr char kSv[] = R"({"kind": "sv", "heads": 2, "key_dim": 8, "value_dim": 8, "sigma": 1.0,
  "box_mass": 20.5, "ridge": 0.00048828125})";

constexpr char kPalimpsas[] = R"(
  {"kind": "palimpsa_d", "heads": 1, "key_dim": 8, "value_dim": 16, "rank": 2},
  {"kind": "palimpsa_m", "heads": 1, "key_dim": 8, "value_dim": 8, "rank": 2,
   "metaplasticity": true})";

constexpr char kVlas[] = R"(
  {"kind": "vla", "heads": 1, "key_dim": 8, "value_dim": 8, "variant": "vla", "nudge": true,
   "lambda0": 0.1, "read_norm": "rms"},
  {"kind": "vla", "heads": 1, "key_dim": 8, "value_dim": 8, "variant": "rls", "nudge": false,
   "lambda0": 0.1, "read_norm": "paper"})";

constexpr char kOvq[] = R"({"kind": "ovq", "heads": 1, "key_dim": 8, "value_dim": 8, "slots": 12})";

constexpr char kWindow[] = R"({"kind": "window", "heads": 1, "key_dim": 8, "value_dim": 8,
  "window": 5, "alibi_slopes": [0.1]})";

std::string Bank(const std::string& groups) {
  return absl::StrCat(R"({"type": "memory", "conv_width": 4, "groups": [)", groups, "]}");
}

}  // namespace

std::string SmallConfigJson() {
  const std::string bank =
      Bank(absl::StrCat(kSv, ",", kPalimpsas, ",", kVlas, ",", kOvq, ",", kWindow));
  return absl::StrCat(kHead, kLocal, ",", bank, ",", kMlp, "]}");
}

std::string ContextualConfigJson() {
  return absl::StrCat(kHead, Bank(absl::StrCat(kSv, ",", kOvq)), ",", kLocal, ",",
                      Bank(absl::StrCat(kVlas, ",", kSv)), "]}");
}

std::string StreamingConfigJson() {
  return absl::StrCat(kHead, kLocal, ",", Bank(absl::StrCat(kOvq, ",", kPalimpsas)), "]}");
}

std::shared_ptr<const Model> ModelOf(const std::string& config_json, uint64_t seed) {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(config_json);
  LETHE_CHECK(config.ok());
  const auto model = Model::Create(*config, SyntheticTensors(*config, seed));
  LETHE_CHECK(model.ok());
  return *model;
}

std::vector<int32_t> SampleIds(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> vocab_ids;
  while (static_cast<int64_t>(vocab_ids.size()) < count) {
    const bool repeats = vocab_ids.size() > 4 && random() % 4 == 0;
    vocab_ids.push_back(repeats ? vocab_ids[vocab_ids.size() - 3]
                                : static_cast<int32_t>(random() % 32));
  }
  return vocab_ids;
}

std::string WriteModelDirectory(const std::string& parent, const std::string& config_json,
                                uint64_t seed) {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(config_json);
  LETHE_CHECK(config.ok());
  const std::string directory = absl::StrCat(parent, "/model-", seed);
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/config.json", std::ios::binary) << config_json;
  std::ofstream(directory + "/model.safetensors", std::ios::binary)
      << SafetensorsBytes(SyntheticTensors(*config, seed));
  return directory;
}

}  // namespace lethe::testing
