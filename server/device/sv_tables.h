// SvTables: per slot what the read kernel is told of the session in it; internal to server/device.
//
// Equation:  none.
// Shapes:    heads(g): [num_slots][H] of sv group g, on the device.
// Units:     slots.
// Requires:  Set: as many slots as sessions, none null, all of one model.
// Rejects:   RESOURCE_EXHAUSTED, INTERNAL: the device's errors.
// Effects:   Set enqueues the copies for slots whose session or support is another than at the last Set. A table
//            holds pointers and counts, nothing of a session's content.
// Numerics:  none.
// Threads:   the queue's owner.
#ifndef LETHE_SERVER_DEVICE_SV_TABLES_H_
#define LETHE_SERVER_DEVICE_SV_TABLES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/queue.h"
#include "kernels/sv_read/sv_read_batch.h"
#include "server/device/sv_session.h"

namespace lethe {

class SvTables {
 public:
  static absl::StatusOr<SvTables> Create(Queue* queue, const ModelConfig& config,
                                         int32_t num_slots);

  absl::Status Set(absl::Span<const int32_t> slots, absl::Span<SvSession* const> sessions);
  const SvReadHead* heads(size_t group) const { return tables_[group].data(); }

 private:
  Queue* queue_ = nullptr;
  std::vector<DeviceArray<SvReadHead>> tables_;
  std::vector<uint64_t> stamps_;  // by slot
};

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_SV_TABLES_H_
