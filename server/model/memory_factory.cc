// MakeMemory: config and weights of a group turned into the options of its Memory.
#include <cmath>

#include "memory/ovq/ovq_memory.h"
#include "memory/palimpsa/palimpsa_memory.h"
#include "memory/vla/vla_memory.h"
#include "memory/window/window_memory.h"
#include "server/model/memory_group.h"

namespace lethe {
namespace {

template <typename T>
absl::StatusOr<std::unique_ptr<Memory>> Widen(absl::StatusOr<std::unique_ptr<T>> memory) {
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<Memory>(std::move(memory).value());
}

absl::StatusOr<std::unique_ptr<Memory>> MakeSv(const GroupConfig& config,
                                               const GroupWeights& weights) {
  svdd::SvOptions options;
  options.num_heads = config.heads;
  options.key_dim = config.key_dim;
  options.value_dim = config.value_dim;
  options.sigma = config.sigma;
  options.box_mass = config.box_mass;
  options.ridge = config.ridge;
  options.beta = weights.beta;
  return Widen(svdd::SvMemory::Create(options));
}

absl::StatusOr<std::unique_ptr<Memory>> MakePalimpsa(const GroupConfig& config) {
  PalimpsaOptions options;
  options.shape = {config.heads, config.key_dim, config.value_dim};
  const bool is_d = config.kind == MemoryKind::kPalimpsaD;
  options.read_scale = is_d ? 1.0f / std::sqrt(static_cast<float>(config.key_dim)) : 1.0f;
  options.metaplasticity = config.metaplasticity;
  return Widen(PalimpsaMemory::Create(options));
}

absl::StatusOr<std::unique_ptr<Memory>> MakeVla(const GroupConfig& config) {
  VlaOptions options;
  options.num_heads = config.heads;
  options.key_dim = config.key_dim;
  options.value_dim = config.value_dim;
  options.variant = config.rls ? VlaVariant::kRls : VlaVariant::kVla;
  options.nudge = config.nudge;
  options.lambda0 = config.lambda0;
  options.read_norm = config.read_norm_paper ? VlaReadNorm::kPaper : VlaReadNorm::kRms;
  return Widen(VlaMemory::Create(options));
}

absl::StatusOr<std::unique_ptr<Memory>> MakeOvq(const GroupConfig& config,
                                                const GroupWeights& weights) {
  OvqOptions options;
  options.num_heads = config.heads;
  options.key_dim = config.key_dim;
  options.value_dim = config.value_dim;
  options.max_slots = config.slots;
  options.beta = weights.beta;
  return Widen(OvqMemory::Create(options));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Memory>> MakeMemory(const GroupConfig& config,
                                                   const GroupWeights& weights) {
  switch (config.kind) {
    case MemoryKind::kSv:
      return MakeSv(config, weights);
    case MemoryKind::kPalimpsaD:
    case MemoryKind::kPalimpsaM:
      return MakePalimpsa(config);
    case MemoryKind::kVla:
      return MakeVla(config);
    case MemoryKind::kOvq:
      return MakeOvq(config, weights);
    case MemoryKind::kWindow:
      return Widen(WindowMemory::Create(
          {config.heads, config.key_dim, config.value_dim, config.window}, weights.alibi_slopes));
  }
  return absl::InternalError("unknown memory kind");
}

}  // namespace lethe
