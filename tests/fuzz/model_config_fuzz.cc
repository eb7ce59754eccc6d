// Goal: a config.json from outside never crashes the loader; what is accepted has one canonical text, and a model of it
// evaluates and forgets.
// Method: parse, write canonically, parse, compare; without its weights no model comes of it; where it is small, a session on random
// weights takes inputs, forgets one and has the digest of a session that never saw it.
#include <string>
#include <variant>
#include <vector>

#include "kernels/base/check.h"
#include "server/model/config.h"
#include "server/model/synthetic_model.h"
#include "server/session/session.h"
#include "tests/fuzz/fuzz_targets.h"

namespace lethe::fuzz {
namespace {

// An input should take milliseconds.
bool IsSmall(const ModelConfig& config) {
  if (config.num_parameters > 20'000 || config.vocab_size > 512) return false;
  for (const LayerConfig& layer : config.layers) {
    const auto* const memory = std::get_if<MemoryLayerConfig>(&layer);
    if (memory == nullptr) continue;
    for (const GroupConfig& group : memory->groups) {
      if (group.slots > 64 || group.heads * group.key_dim * group.value_dim > 4096) return false;
    }
  }
  return true;
}

void Evaluate(const ModelConfig& config) {
  const auto model = Model::Create(config, SyntheticTensors(config, 1));
  LETHE_CHECK(model.ok());
  const auto session = Session::Create(*model, {});
  const auto fresh = Session::Create(*model, {});
  LETHE_CHECK(session.ok() && fresh.ok());
  const auto last = static_cast<int32_t>(config.vocab_size - 1);
  const std::vector<int32_t> inputs = {0, last, 0, last};
  const std::vector<int32_t> retained = {0, 0, last};
  if (config.max_tokens < static_cast<int64_t>(inputs.size())) return;
  const auto taken = (*session)->Append(inputs, "", InputKind::kAppended);
  if (!taken.ok()) return;  // random weights may overflow
  const bool is_evaluated = (*fresh)->Append(retained, "", InputKind::kAppended).ok();
  const auto selector = ForgetSelector::Ids({(*taken)[1]});
  const bool is_forgotten = (*session)->Forget(selector, DerivedPolicy::kFail).ok();
  LETHE_CHECK(is_forgotten == is_evaluated);
  if (!is_forgotten) return;
  LETHE_CHECK((*session)->Digest() == (*fresh)->Digest());
}

}  // namespace

void FuzzModelConfig(absl::string_view bytes) {
  const auto config = ParseModelConfig(bytes);
  if (!config.ok()) return;
  const std::string canonical = config->CanonicalJson();
  const auto again = ParseModelConfig(canonical);
  LETHE_CHECK(again.ok() && again->CanonicalJson() == canonical);
  LETHE_CHECK(again->num_parameters == config->num_parameters);
  LETHE_CHECK(!Model::Create(*config, {}).ok());
  if (IsSmall(*config)) Evaluate(*config);
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzModelConfig)
