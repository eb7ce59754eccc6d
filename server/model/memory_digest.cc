// MemoryGroup: its parts of the state digest (docs/state-digest.md) and its sizes.
#include "absl/strings/str_cat.h"

#include "server/model/memory_group.h"
#include "server/model/support_state.h"

namespace lethe {
void MemoryGroup::AppendDigestParts(const std::string& prefix, audit::StateParts* parts) const {
  ByteWriter tails;
  tails_.q.AppendTo(&tails);
  tails_.k.AppendTo(&tails);
  tails_.v.AppendTo(&tails);
  parts->Add(prefix + ".conv", tails.bytes());
  AppendMemoryParts(prefix, parts);
}

void MemoryGroup::AppendMemoryParts(const std::string& prefix, audit::StateParts* parts) const {
  for (size_t head = 0; head < key_trees_.size(); ++head) {
    const svdd::SvHeadView view = sv_memory_->head(static_cast<int64_t>(head));
    const audit::SupportState support =
        SupportStateOf(*view.params, *view.solution, key_trees_[head].Root());
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
