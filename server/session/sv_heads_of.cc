#include "server/session/sv_heads_of.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "memory/svdd/sv_memory.h"

namespace lethe {

std::vector<SvHead> SvHeadsOf(const ModelState& state) {
  std::vector<SvHead> heads;
  for (const ModelState::SvGroup& group : state.SvGroups()) {
    const LayerConfig& layer = state.model().config().layers[static_cast<size_t>(group.layer)];
    const GroupConfig& config =
        std::get<MemoryLayerConfig>(layer).groups[static_cast<size_t>(group.group)];
    for (int64_t i = 0; i < group.memory->num_heads(); ++i) {
      const svdd::SvHeadView view = group.memory->head(i);
      SvHead head;
      head.layer = static_cast<uint64_t>(group.layer);
      head.group = static_cast<uint64_t>(group.group);
      head.head = static_cast<uint64_t>(i);
      head.name = absl::StrCat("layer.", group.layer, ".group.", group.group, ".head.", i);
      head.value_dim = config.value_dim;
      head.params = view.params;
      head.solution = view.solution;
      head.keys = view.gated_keys;
      head.values = view.gated_values;
      head.tail_keys = view.tail_keys;
      head.tail_values = view.tail_values;
      heads.push_back(std::move(head));
    }
  }
  return heads;
}

}  // namespace lethe
