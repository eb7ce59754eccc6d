#include "server/certification/sv_heads.h"

#include <utility>
#include <variant>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "memory/svdd/readout_bound.h"
#include "memory/svdd/witness.h"

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
  const auto num_keys = static_cast<size_t>(head.solution->num_keys);
  LETHE_CHECK(token_ids.size() >= num_keys);
  return {token_ids.begin(), token_ids.begin() + static_cast<std::ptrdiff_t>(num_keys)};
}

}  // namespace

std::optional<svdd::Witness> WitnessOfHead(const SvHead& head) {
  const svdd::Solution& solution = *head.solution;
  if (solution.num_keys == 0) return std::nullopt;
  return svdd::RefineWitness(*head.params, Widened(head.keys),
                             {solution.classes, solution.a, solution.rho, nullptr});
}

absl::StatusOr<std::optional<svdd::OptimalityBounds>> ProveHead(
    const SvHead& head, const std::optional<svdd::Witness>& witness) {
  const svdd::Solution& solution = *head.solution;
  if (solution.num_keys == 0) return std::optional<svdd::OptimalityBounds>();
  LETHE_ASSIGN_OR_RETURN(svdd::OptimalityBounds bounds,
                         svdd::ProveOptimality(*head.params, Widened(head.keys),
                                               {solution.classes, solution.a, solution.rho,
                                                witness.has_value() ? &*witness : nullptr}));
  const std::vector<double> values = Widened(head.values);
  const std::vector<double> tail = Widened(head.tail_values);
  svdd::AddReadoutBound(absl::MakeConstSpan(solution.classes),
                        svdd::ReadoutValues<double>{values, tail, head.value_dim}, &bounds);
  return std::optional<svdd::OptimalityBounds>(bounds);
}

bool InWarmUp(const SvHead& head) {
  return static_cast<double>(head.solution->num_keys) <= head.params->box_mass;
}

audit::MemoryDraft DraftHead(const SvHead& head, absl::Span<const uint64_t> token_ids) {
  const svdd::Solution& solution = *head.solution;
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

audit::BundleHead BundleOfHead(const SvHead& head, absl::Span<const uint64_t> token_ids,
                               std::optional<svdd::Witness> witness) {
  audit::BundleHead bundle;
  bundle.layer = head.layer;
  bundle.group = head.group;
  bundle.head = head.head;
  bundle.sigma = head.params->sigma;
  bundle.box_mass = head.params->box_mass;
  bundle.ridge = head.params->ridge;
  bundle.rho = head.solution->rho;
  bundle.token_ids = GatedIds(head, token_ids);
  bundle.classes = KeyClasses(*head.solution);
  bundle.a = head.solution->a;
  bundle.format = std::holds_alternative<absl::Span<const double>>(head.keys)
                      ? audit::NumberFormat::kF64
                      : audit::NumberFormat::kF32;
  bundle.keys = Widened(head.keys);
  bundle.values = Widened(head.values);
  if (bundle.format == audit::NumberFormat::kF32) {
    bundle.tail = audit::BundleTail{Widened(head.tail_keys), Widened(head.tail_values)};
  }
  bundle.witness = std::move(witness);
  bundle.key_dim = static_cast<uint64_t>(head.params->key_dim);
  bundle.value_dim = static_cast<uint64_t>(head.value_dim);
  return bundle;
}

}  // namespace lethe
