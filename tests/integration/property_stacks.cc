#include "tests/integration/property_stacks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "tests/testing/small_model.h"

namespace lethe::testing {
namespace {

constexpr char kHead[] =
    R"({"format": "lethe-model/1", "name": "stack", "tokenizer": "bytes", "vocab_size": 32, "end_of_text": -1,)"
    R"( "width": 16, "max_tokens": 4096, "norm_eps": 1e-6, "layers": [)";
constexpr char kLocal[] =
    R"({"type": "local", "heads": 2, "head_dim": 8, "window": 9, "conv_width": 4, "mlp_width": 16, "alibi_slopes": [0.1, 0.3]})";
constexpr char kMlp[] = R"({"type": "mlp", "mlp_width": 16})";

std::string Memory(const std::string& groups) {
  return absl::StrCat(R"({"type": "memory", "conv_width": 3, "groups": [)", groups, "]}");
}

constexpr char kSv[] =
    R"({"kind": "sv", "heads": 1, "key_dim": 8, "value_dim": 8, "sigma": 1.0, "box_mass": 12.5, "ridge": 0.00048828125})";
constexpr char kSvTwoHeads[] =
    R"({"kind": "sv", "heads": 2, "key_dim": 8, "value_dim": 8, "sigma": 0.7, "box_mass": 20, "ridge": 0.00048828125})";
constexpr char kPalimpsaD[] =
    R"({"kind": "palimpsa_d", "heads": 2, "key_dim": 8, "value_dim": 8, "rank": 2})";
constexpr char kPalimpsaM[] =
    R"({"kind": "palimpsa_m", "heads": 1, "key_dim": 8, "value_dim": 8, "rank": 2, "metaplasticity": true})";
constexpr char kVla[] =
    R"({"kind": "vla", "heads": 1, "key_dim": 8, "value_dim": 8, "variant": "vla", "nudge": true, "lambda0": 0.1, "read_norm": "rms"})";
constexpr char kVlaPaper[] =
    R"({"kind": "vla", "heads": 1, "key_dim": 8, "value_dim": 8, "variant": "vla", "nudge": true, "lambda0": 1.0, "read_norm": "paper"})";
constexpr char kRls[] =
    R"({"kind": "vla", "heads": 1, "key_dim": 8, "value_dim": 8, "variant": "rls", "nudge": true, "lambda0": 0.5, "read_norm": "rms"})";
constexpr char kOvq[] = R"({"kind": "ovq", "heads": 1, "key_dim": 8, "value_dim": 8, "slots": 8})";
constexpr char kOvqLarge[] =
    R"({"kind": "ovq", "heads": 1, "key_dim": 8, "value_dim": 8, "slots": 48})";
constexpr char kWindow[] =
    R"({"kind": "window", "heads": 1, "key_dim": 8, "value_dim": 8, "window": 17, "alibi_slopes": [0.05]})";

constexpr char kNarrowLocal[] =
    R"({"type": "local", "heads": 1, "head_dim": 16, "window": 1, "conv_width": 1, "mlp_width": 16, "alibi_slopes": [0.1]})";
constexpr char kWideVla[] =
    R"({"kind": "vla", "heads": 2, "key_dim": 8, "value_dim": 16, "variant": "vla", "nudge": true, "lambda0": 0.1, "read_norm": "rms"})";
constexpr char kWideOvq[] =
    R"({"kind": "ovq", "heads": 2, "key_dim": 8, "value_dim": 16, "slots": 12})";
constexpr char kWidePalimpsaD[] =
    R"({"kind": "palimpsa_d", "heads": 1, "key_dim": 16, "value_dim": 24, "rank": 2})";

std::shared_ptr<const Model> Build(const std::vector<std::string>& layers, uint64_t seed) {
  return ModelOf(absl::StrCat(kHead, absl::StrJoin(layers, ", "), "]}"), seed);
}

std::string Join(const std::vector<std::string>& groups) { return absl::StrJoin(groups, ", "); }

}  // namespace

std::vector<std::shared_ptr<const Model>> PropertyStacks() {
  return {
      // Bounded, as lethe-tiny: local layers, one bank of all memories, a token-wise layer.
      Build({kLocal, Memory(Join({kSv, kPalimpsaD, kVla, kOvq})), kMlp}, 1),
      // Every memory at its own depth, each reading what the one below it wrote.
      Build({Memory(kOvq), kLocal, Memory(kVla), Memory(kPalimpsaM), kMlp, Memory(kSv)}, 2),
      Build({Memory(kPalimpsaD), Memory(kSvTwoHeads), kMlp, Memory(kOvqLarge), kLocal}, 3),
      // The variants, two deep.
      Build({Memory(Join({kRls, kWindow, kOvq})), kMlp, Memory(Join({kVlaPaper, kPalimpsaM, kSv}))},
            4),
      // No local layer at all, and memories last.
      Build({Memory(Join({kSv, kOvq})), Memory(Join({kVla, kPalimpsaD}))}, 5),
      // Bounded: three local layers, every variant of the streaming memories, two support-vector
      // heads with a mass that histories cross.
      Build({kLocal, kMlp, kLocal, kLocal,
             Memory(Join({kRls, kSvTwoHeads, kVlaPaper, kPalimpsaM, kWindow, kOvqLarge})), kMlp},
            6),
      // Bounded: no support-vector memory; values wider than keys; nothing to convolve or attend to.
      Build({kNarrowLocal,
             R"({"type": "memory", "conv_width": 1, "groups": [)" +
                 Join({kWideVla, kWideOvq, kWidePalimpsaD}) + "]}",
             kMlp, kMlp},
            8),
      // Bounded: support-vector memories alone.
      Build({kMlp, kLocal, Memory(kSvTwoHeads)}, 9),
      // Bounded: the bank first and last.
      Build({Memory(Join({kOvq, kSv, kVla, kPalimpsaD}))}, 7),
  };
}

}  // namespace lethe::testing
