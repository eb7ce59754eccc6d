// RandomModel: a small model with random layers, every kind of layer and of memory among them, and
// random weights.
//
// Units: none.   Requires: none.   Rejects: none.   Effects: none.
// Numerics: the same bits in every process.   Threads: safe.
#ifndef LETHE_TESTS_SERVER_DEVICE_MODELS_H_
#define LETHE_TESTS_SERVER_DEVICE_MODELS_H_

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "tests/testing/small_model.h"

namespace lethe::testing {

class RandomConfig {
 public:
  explicit RandomConfig(uint64_t seed) : random_(seed) {}

  // Two memory layers, so that what the upper stores depends on what the lower reads; all kinds of groups.
  std::string Json() {
    std::vector<std::string> groups = {Palimpsa("d"), Palimpsa("m"), Palimpsa("m"), Vla(), Vla(),
                                       Ovq(),         Window(),      Sv(),          Sv()};
    std::shuffle(groups.begin(), groups.end(), random_);
    const auto middle = groups.begin() + 1 + Below(static_cast<int>(groups.size()) - 1);
    std::vector<std::string> layers = {Local(), Memory({groups.begin(), middle}), Mlp(), Local(),
                                       Memory({middle, groups.end()})};
    if (Below(2) == 0) std::swap(layers[0], layers[2]);
    if (Below(2) == 0) layers.push_back(Mlp());
    return absl::StrCat(
        R"({"format": "lethe-model/1", "name": "random", "tokenizer": "bytes", "vocab_size": 32,
            "end_of_text": 0, "width": )",
        8 * (1 + Below(3)), R"(, "max_tokens": 4096, "norm_eps": 1e-6, "layers": [)",
        absl::StrJoin(layers, ","), "]}");
  }

 private:
  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
  const char* Bool() { return Below(2) == 0 ? "false" : "true"; }
  std::string Slopes(int heads) {
    std::vector<double> slopes;
    for (int i = 0; i < heads; ++i) slopes.push_back(0.03125 * (1 + Below(8)));
    return absl::StrCat("[", absl::StrJoin(slopes, ","), "]");
  }
  std::string Heads(int heads) {
    return absl::StrCat(R"("heads": )", heads, R"(, "key_dim": )", 8 * (1 + Below(2)),
                        R"(, "value_dim": )", 8 * (1 + Below(2)));
  }
  std::string Local() {
    const int heads = 1 + Below(2);
    return absl::StrCat(R"({"type": "local", "heads": )", heads, R"(, "head_dim": 8, "window": )",
                        1 + Below(9), R"(, "conv_width": )", 1 + Below(5),
                        R"(, "mlp_width": 16, "alibi_slopes": )", Slopes(heads), "}");
  }
  std::string Mlp() { return R"({"type": "mlp", "mlp_width": 24})"; }
  std::string Memory(const std::vector<std::string>& groups) {
    return absl::StrCat(R"({"type": "memory", "conv_width": )", 1 + Below(5), R"(, "groups": [)",
                        absl::StrJoin(groups, ","), "]}");
  }
  std::string Palimpsa(const std::string& kind) {
    std::string options;
    if (kind == "m") {
      options = absl::StrCat(R"(, "metaplasticity": )", Bool(), R"(, "out_norm": )",
                             Below(2) == 0 ? R"("head")" : R"("group")");
    }
    return absl::StrCat(R"({"kind": "palimpsa_)", kind, R"(", )", Heads(1 + Below(3)),
                        R"(, "rank": )", 1 + Below(5), options, "}");
  }
  std::string Vla() {
    return absl::StrCat(R"({"kind": "vla", )", Heads(1 + Below(2)), R"(, "variant": )",
                        Below(2) == 0 ? R"("vla")" : R"("rls")", R"(, "nudge": )", Bool(),
                        R"(, "lambda0": 0.125, "read_norm": )",
                        Below(2) == 0 ? R"("rms")" : R"("paper")", "}");
  }
  std::string Ovq() {
    return absl::StrCat(R"({"kind": "ovq", )", Heads(1 + Below(2)), R"(, "slots": )", 2 + Below(30),
                        "}");
  }
  std::string Sv() {
    return absl::StrCat(R"({"kind": "sv", )", Heads(1 + Below(2)),
                        R"(, "sigma": 1.0, "box_mass": )", Below(2) == 0 ? "16" : "256",
                        R"(, "ridge": 0.00048828125})");
  }
  std::string Window() {
    const int heads = 1 + Below(2);
    return absl::StrCat(R"({"kind": "window", )", Heads(heads), R"(, "window": )", 1 + Below(9),
                        R"(, "alibi_slopes": )", Slopes(heads), "}");
  }

  std::mt19937_64 random_;
};

inline std::shared_ptr<const Model> RandomModel(uint64_t seed) {
  return ModelOf(RandomConfig(seed).Json(), seed);
}

}  // namespace lethe::testing

#endif  // LETHE_TESTS_SERVER_DEVICE_MODELS_H_
