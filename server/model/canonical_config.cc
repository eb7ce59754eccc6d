// ModelConfig::CanonicalJson: one text per meaning, so that the model digest does not depend on
// white space, key order or the way a number is written.
#include <charconv>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "server/model/config.h"

namespace lethe {
namespace {

std::string Real(double value) {
  char text[64];
  const std::to_chars_result end = std::to_chars(text, text + sizeof text, value);
  LETHE_CHECK(end.ec == std::errc());
  return std::string(text, end.ptr);
}

std::string Reals(const std::vector<double>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) absl::StrAppend(&text, i ? "," : "", Real(values[i]));
  return text + "]";
}

const char* Bool(bool value) { return value ? "true" : "false"; }

std::string GroupJson(const GroupConfig& group) {
  std::string text =
      absl::StrCat("{\"kind\":\"", MemoryKindName(group.kind), "\",\"heads\":", group.heads,
                   ",\"key_dim\":", group.key_dim, ",\"value_dim\":", group.value_dim);
  switch (group.kind) {
    case MemoryKind::kSv:
      absl::StrAppend(&text, ",\"sigma\":", Real(group.sigma),
                      ",\"box_mass\":", Real(group.box_mass), ",\"ridge\":", Real(group.ridge));
      break;
    case MemoryKind::kPalimpsaD:
      absl::StrAppend(&text, ",\"rank\":", group.rank);
      break;
    case MemoryKind::kPalimpsaM:
      absl::StrAppend(&text, ",\"rank\":", group.rank,
                      ",\"metaplasticity\":", Bool(group.metaplasticity),
                      group.out_norm_group ? ",\"out_norm\":\"group\"" : "");
      break;
    case MemoryKind::kVla:
      absl::StrAppend(&text, ",\"variant\":\"", group.rls ? "rls" : "vla",
                      "\",\"nudge\":", Bool(group.nudge), ",\"lambda0\":", Real(group.lambda0),
                      ",\"read_norm\":\"", group.read_norm_paper ? "paper" : "rms", "\"");
      break;
    case MemoryKind::kOvq:
      absl::StrAppend(&text, ",\"slots\":", group.slots);
      break;
    case MemoryKind::kWindow:
      absl::StrAppend(&text, ",\"window\":", group.window,
                      ",\"alibi_slopes\":", Reals(group.alibi_slopes));
      break;
  }
  return text + "}";
}

std::string LayerJson(const LayerConfig& layer) {
  if (const auto* local = std::get_if<LocalLayerConfig>(&layer)) {
    return absl::StrCat("{\"type\":\"local\",\"heads\":", local->heads,
                        ",\"head_dim\":", local->head_dim, ",\"window\":", local->window,
                        ",\"conv_width\":", local->conv_width, ",\"mlp_width\":", local->mlp_width,
                        ",\"alibi_slopes\":", Reals(local->alibi_slopes), "}");
  }
  if (const auto* mlp = std::get_if<MlpLayerConfig>(&layer)) {
    return absl::StrCat("{\"type\":\"mlp\",\"mlp_width\":", mlp->mlp_width, "}");
  }
  const auto& memory = std::get<MemoryLayerConfig>(layer);
  std::string text =
      absl::StrCat("{\"type\":\"memory\",\"conv_width\":", memory.conv_width, ",\"groups\":[");
  for (size_t i = 0; i < memory.groups.size(); ++i) {
    absl::StrAppend(&text, i ? "," : "", GroupJson(memory.groups[i]));
  }
  return text + "]}";
}

}  // namespace

std::string ModelConfig::CanonicalJson() const {
  std::string text = absl::StrCat(
      "{\"format\":\"lethe-model/1\",\"name\":\"", name, "\",\"tokenizer\":\"", tokenizer,
      "\",\"vocab_size\":", vocab_size, ",\"end_of_text\":", end_of_text, ",\"width\":", width,
      ",\"max_tokens\":", max_tokens, ",\"norm_eps\":", Real(norm_eps), ",\"layers\":[");
  for (size_t i = 0; i < layers.size(); ++i) {
    absl::StrAppend(&text, i ? "," : "", LayerJson(layers[i]));
  }
  return text + "]}";
}

}  // namespace lethe
