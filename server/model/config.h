// ModelConfig, ParseModelConfig: config.json of a model directory, completely validated.
//
// Equation:  none; docs/model-format.md section 1 is binding.
// Shapes:    none.
// Units:     tokens, elements.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT for malformed JSON, an unknown or missing key, a wrong type or a
//            value out of range; the message names the key's path ("layers[4].groups[0].sigma") and
//            what is accepted.
// Effects:   none.
// Numerics:  doubles as JSON gives them.
// Threads:   safe.
#ifndef LETHE_SERVER_MODEL_CONFIG_H_
#define LETHE_SERVER_MODEL_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lethe {

// Accepted ranges that session options share (docs/model-format.md).
inline constexpr double kSigmaMin = 0x1p-20;
inline constexpr double kSigmaMax = 0x1p20;
inline constexpr double kBoxMassMin = 1.0;
inline constexpr double kBoxMassMax = 0x1p20;
inline constexpr double kRidgeMin = 1e-8;
inline constexpr double kRidgeMax = 1.0;
inline constexpr int64_t kSlotsMin = 2;
inline constexpr int64_t kSlotsMax = 65536;

enum class MemoryKind { kSv, kPalimpsaD, kPalimpsaM, kVla, kOvq, kWindow };

// "sv", "palimpsa_d", ... as in config.json.
absl::string_view MemoryKindName(MemoryKind kind);

struct GroupConfig {
  MemoryKind kind = MemoryKind::kSv;
  int64_t heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  double sigma = 0.0;                // sv
  double box_mass = 0.0;             // sv: M = 1/C
  double ridge = 0.0;                // sv
  int64_t rank = 0;                  // palimpsa
  bool metaplasticity = true;        // palimpsa_m
  bool out_norm_group = false;       // palimpsa_m: out_norm "group"
  bool rls = false;                  // vla: variant "rls"
  bool nudge = false;                // vla
  double lambda0 = 0.0;              // vla
  bool read_norm_paper = false;      // vla: read_norm "paper"
  int64_t slots = 0;                 // ovq
  int64_t window = 0;                // window
  std::vector<double> alibi_slopes;  // window, [heads]
};

struct LocalLayerConfig {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t window = 0;
  int64_t conv_width = 0;
  int64_t mlp_width = 0;
  std::vector<double> alibi_slopes;  // [heads]
};
struct MlpLayerConfig {
  int64_t mlp_width = 0;
};
struct MemoryLayerConfig {
  int64_t conv_width = 0;
  std::vector<GroupConfig> groups;
  bool bounded = false;  // derived: every layer below is local or mlp
};
using LayerConfig = std::variant<LocalLayerConfig, MlpLayerConfig, MemoryLayerConfig>;

// Tokens before the current one that a layer's own convolution and window let it depend on: 0 for a
// token-wise layer; of a memory layer what its memories take.
int64_t LocalReach(const LayerConfig& layer);

struct ModelConfig {
  std::string name;
  std::string tokenizer;
  int64_t vocab_size = 0;
  int64_t end_of_text = -1;
  int64_t width = 0;
  int64_t max_tokens = 0;
  double norm_eps = 0.0;
  std::vector<LayerConfig> layers;

  // Derived facts. The first memory layer's keys at a token are a function of the last
  // local_receptive_field tokens when it is bounded: 1 + sum of (window - 1) + (conv_width - 1)
  // over the layers below and its own convolutions.
  int64_t local_receptive_field = 1;
  // The only memory layer, when it is bounded and every layer above is token-wise: then a Forget
  // needs no evaluation of the model (design.md 2.1).
  std::optional<size_t> bank;
  int64_t num_parameters = 0;

  // Canonical JSON: keys in the order of docs/model-format.md, no spaces, shortest round-trip
  // numbers. Enters the model digest.
  std::string CanonicalJson() const;
};

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json);

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_CONFIG_H_
