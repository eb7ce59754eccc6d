#include "server/certification/sv_heads.h"

#include <variant>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

audit::KeyClass ToKeyClass(svdd::Partition partition) {
  switch (partition) {
    case svdd::Partition::kMargin:
      return audit::KeyClass::kMargin;
    case svdd::Partition::kError:
      return audit::KeyClass::kError;
    case svdd::Partition::kReserve:
      break;
  }
  return audit::KeyClass::kReserve;
}

std::vector<audit::KeyClass> KeyClasses(const svdd::Solution& solution) {
  std::vector<audit::KeyClass> classes;
  classes.reserve(solution.classes.size());
  for (const svdd::Partition partition : solution.classes) {
    classes.push_back(ToKeyClass(partition));
  }
  return classes;
}

std::vector<uint64_t> GatedIds(const SvHead& head, absl::Span<const uint64_t> token_ids) {
  const auto num_keys = static_cast<size_t>(head.view.solution->num_keys);
  LETHE_CHECK(token_ids.size() >= num_keys);
  return {token_ids.begin(), token_ids.begin() + static_cast<std::ptrdiff_t>(num_keys)};
}

}  // namespace

std::vector<SvHead> SvHeads(const ModelState& state) {
  std::vector<SvHead> heads;
  for (const ModelState::SvGroup& group : state.SvGroups()) {
    const LayerConfig& layer = state.model().config().layers[static_cast<size_t>(group.layer)];
    const GroupConfig& config =
        std::get<MemoryLayerConfig>(layer).groups[static_cast<size_t>(group.group)];
    for (int64_t i = 0; i < group.memory->num_heads(); ++i) {
      SvHead head;
      head.layer = static_cast<uint64_t>(group.layer);
      head.group = static_cast<uint64_t>(group.group);
      head.head = static_cast<uint64_t>(i);
      head.name = absl::StrCat("layer.", group.layer, ".group.", group.group, ".head.", i);
      head.value_dim = config.value_dim;
      head.view = group.memory->head(i);
      heads.push_back(std::move(head));
    }
  }
  return heads;
}

absl::StatusOr<std::optional<svdd::OptimalityBounds>> ProveHead(const SvHead& head) {
  const svdd::Solution& solution = *head.view.solution;
  if (solution.num_keys == 0) return std::optional<svdd::OptimalityBounds>();
  const std::vector<double> keys(head.view.gated_keys.begin(), head.view.gated_keys.end());
  LETHE_ASSIGN_OR_RETURN(
      svdd::OptimalityBounds bounds,
      svdd::ProveOptimality(*head.view.params, keys, solution.classes, solution.a, solution.rho));
  return std::optional<svdd::OptimalityBounds>(bounds);
}

bool InWarmUp(const SvHead& head) {
  return static_cast<double>(head.view.solution->num_keys) <= head.view.params->box_mass;
}

audit::MemoryDraft DraftHead(const SvHead& head, absl::Span<const uint64_t> token_ids) {
  const svdd::Solution& solution = *head.view.solution;
  audit::MemoryDraft draft;
  draft.layer = head.layer;
  draft.group = head.group;
  draft.head = head.head;
  draft.token_ids = GatedIds(head, token_ids);
  draft.classes = KeyClasses(solution);
  draft.a = solution.a;
  draft.smallest_margin = solution.smallest_margin;
  return draft;
}

audit::BundleHead BundleOfHead(const SvHead& head, absl::Span<const uint64_t> token_ids) {
  const svdd::SvHeadView& view = head.view;
  audit::BundleHead bundle;
  bundle.layer = head.layer;
  bundle.group = head.group;
  bundle.head = head.head;
  bundle.sigma = view.params->sigma;
  bundle.box_mass = view.params->box_mass;
  bundle.ridge = view.params->ridge;
  bundle.rho = view.solution->rho;
  bundle.token_ids = GatedIds(head, token_ids);
  bundle.classes = KeyClasses(*view.solution);
  bundle.a = view.solution->a;
  bundle.keys.assign(view.gated_keys.begin(), view.gated_keys.end());
  bundle.values.assign(view.gated_values.begin(), view.gated_values.end());
  bundle.key_dim = static_cast<uint64_t>(view.params->key_dim);
  bundle.value_dim = static_cast<uint64_t>(head.value_dim);
  return bundle;
}

}  // namespace lethe
