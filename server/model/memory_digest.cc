// MemoryGroup: its parts of the state digest (docs/state-digest.md) and its sizes.
#include "absl/strings/str_cat.h"

#include "server/model/memory_group.h"

namespace lethe {
namespace {

audit::SupportState SupportOf(const svdd::SvHeadView& view, const audit::InputTree& tree) {
  audit::SupportState support;
  support.sigma = view.params->sigma;
  support.box_mass = view.params->box_mass;
  support.ridge = view.params->ridge;
  support.num_gated = static_cast<uint64_t>(view.solution->num_keys);
  support.rho = view.solution->rho;
  for (size_t i = 0; i < view.solution->classes.size(); ++i) {
    const svdd::Partition part = view.solution->classes[i];
    if (part == svdd::Partition::kReserve) continue;
    const auto support_class = part == svdd::Partition::kMargin ? audit::SupportClass::kMargin
                                                                : audit::SupportClass::kError;
    support.rows.push_back({i, support_class, view.solution->a[i]});
  }
  support.inputs_root = tree.Root();
  return support;
}

}  // namespace

void MemoryGroup::AppendDigestParts(const std::string& prefix, audit::StateParts* parts) const {
  ByteWriter tails;
  tails_.q.AppendTo(&tails);
  tails_.k.AppendTo(&tails);
  tails_.v.AppendTo(&tails);
  parts->Add(prefix + ".conv", tails.bytes());
  for (size_t head = 0; head < key_trees_.size(); ++head) {
    const audit::SupportState support =
        SupportOf(sv_memory_->head(static_cast<int64_t>(head)), key_trees_[head]);
    parts->Add(absl::StrCat(prefix, ".head.", head, ".support"), SupportStateBytes(support));
  }
  ByteWriter state;
  memory_->AppendCanonicalState(&state);
  parts->Add(prefix + ".memory", state.bytes());
}

size_t MemoryGroup::state_bytes() const {
  size_t bytes = tails_.q.state_bytes() + tails_.k.state_bytes() + tails_.v.state_bytes();
  for (const audit::InputTree& tree : key_trees_) bytes += tree.state_bytes();
  return bytes + memory_->state_bytes();
}

size_t MemoryGroup::SnapshotBytes(const Snapshot& snapshot) {
  const Tails& tails = snapshot.tails;
  return tails.q.state_bytes() + tails.k.state_bytes() + tails.v.state_bytes() +
         (snapshot.memory == nullptr ? 0 : snapshot.memory->state_bytes());
}

}  // namespace lethe
