#include "server/device/sv_tables.h"

#include <variant>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace lethe {

absl::StatusOr<SvTables> SvTables::Create(Queue* queue, const ModelConfig& config,
                                          int32_t num_slots) {
  SvTables tables;
  tables.queue_ = queue;
  tables.stamps_.resize(static_cast<size_t>(num_slots));
  for (const LayerConfig& layer : config.layers) {
    const auto* memory = std::get_if<MemoryLayerConfig>(&layer);
    if (memory == nullptr) continue;
    for (const GroupConfig& group : memory->groups) {
      if (group.kind != MemoryKind::kSv) continue;
      LETHE_ASSIGN_OR_RETURN(
          DeviceArray<SvReadHead> table,
          DeviceArray<SvReadHead>::Zeros(queue, static_cast<size_t>(num_slots * group.heads)));
      tables.tables_.push_back(std::move(table));
    }
  }
  return tables;
}

absl::Status SvTables::Set(absl::Span<const int32_t> slots, absl::Span<SvSession* const> sessions) {
  for (size_t i = 0; i < slots.size(); ++i) {
    const SvSession* session = sessions[i];
    uint64_t& stamp = stamps_[static_cast<size_t>(slots[i])];
    LETHE_CHECK(session != nullptr && session->num_groups() == tables_.size());
    if (stamp == session->stamp()) continue;
    for (size_t group = 0; group < tables_.size(); ++group) {
      const absl::Span<const SvReadHead> heads = session->heads(group);
      SvReadHead* to = tables_[group].data() + static_cast<size_t>(slots[i]) * heads.size();
      LETHE_RETURN_IF_ERROR(
          queue_->CopyToDevice(heads.data(), heads.size() * sizeof(SvReadHead), to));
    }
    stamp = session->stamp();
  }
  return absl::OkStatus();
}

}  // namespace lethe
