#include "server/model/synthetic_model.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/match.h"

#include "server/model/expected_tensors.h"

namespace lethe {
namespace {

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  // In [-1, 1), a multiple of 2^-23.
  float Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return static_cast<float>(static_cast<int64_t>(z >> 40)) * 0x1p-23f - 1.0f;
  }

 private:
  uint64_t state_;
};

uint64_t NameHash(const std::string& name) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// value = offset + scale * uniform, by the role that the name's last word gives.
struct Range {
  float offset = 0.0f;
  float scale = 1.0f;
};

Range RangeOf(const std::string& name, const std::vector<int64_t>& shape) {
  const auto ends = [&](const char* suffix) { return absl::EndsWith(name, suffix); };
  if (ends("norm.weight") || ends("norm1.weight") || ends("norm2.weight") || ends("read_gain") ||
      ends("b_scale") || ends(".D")) {
    return {1.0f, 0.25f};
  }
  if (ends("beta")) return {4.0f, 1.0f};
  if (ends("A_log")) return {0.5f, 1.0f};
  if (ends("dt_bias")) return {-5.0f, 1.0f};
  if (ends("bias")) return {0.0f, 0.25f};
  if (ends("embed.weight")) return {0.0f, 1.75f};
  if (ends("conv.weight") || ends("conv_q.weight") || ends("conv_k.weight") ||
      ends("conv_v.weight")) {
    return {0.0f, 0.5f};
  }
  // Variance 1 / fan_in: a uniform number has variance 1/3.
  return {0.0f, std::sqrt(3.0f / static_cast<float>(shape[1]))};
}

}  // namespace

TensorMap SyntheticTensors(const ModelConfig& config, uint64_t seed) {
  TensorMap tensors;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    SplitMix64 random(seed ^ NameHash(spec.name));
    const Range range = RangeOf(spec.name, spec.shape);
    const bool is_conv = absl::StrContains(spec.name, "conv") && spec.shape.size() == 2;
    size_t count = 1;
    for (const int64_t size : spec.shape) count *= static_cast<size_t>(size);
    Tensor tensor;
    tensor.shape = spec.shape;
    tensor.values.resize(count);
    for (size_t i = 0; i < count; ++i) {
      tensor.values[i] = range.offset + range.scale * random.Next();
      // The current token's tap dominates.
      if (is_conv && i % static_cast<size_t>(spec.shape[1]) == 0) tensor.values[i] += 1.0f;
    }
    tensors.emplace(spec.name, std::move(tensor));
  }
  return tensors;
}

}  // namespace lethe
