// DeviceGroup: one group of heads of a memory layer on a device: its gates, its memory, its output maps;
// internal to server/device.
//
// Equation:  docs/model-format.md 2.3, from the convolved q, k, v and the products of w_gates to o_G.
// Shapes:    the group takes its columns from the layer's rows by the parts that it adds to conv_parts (of
//            [num_tokens][num_channels]) and gate_parts, has heads of them l2-normalised by norm_parts, and gives its reads by the part that it adds to
//            join_parts.
// Units:     none.
// Requires:  GroupSetup's pointers outlive the group, except those that it adds to. Parts are split and
//            normalised before Forward, joined after it.
// Rejects:   Forward: INTERNAL when a launch fails.
// Effects:   Forward enqueues the work that moves the slots' states on.
// Numerics:  as device_forward.h.
// Threads:   the queue's owner.
#ifndef LETHE_SERVER_DEVICE_DEVICE_GROUP_H_
#define LETHE_SERVER_DEVICE_DEVICE_GROUP_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "kernels/elementwise/columns.h"
#include "server/device/device_layer.h"

namespace lethe {

struct GroupSetup {
  const LayerSetup* layer = nullptr;
  const GroupConfig* config = nullptr;
  const DeviceGroupWeights* weights = nullptr;
  GroupColumns columns;
  GateColumns gates;
  const std::vector<SlotPart>* parts = nullptr;  // of the slot
  int64_t first_read = 0;                        // column of the group's reads
  std::vector<elementwise::SplitPart>* conv_parts = nullptr;
  std::vector<elementwise::SplitPart>* gate_parts = nullptr;
  std::vector<elementwise::HeadsPart>* norm_parts = nullptr;
  std::vector<elementwise::JoinPart>* join_parts = nullptr;
};

class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  virtual absl::Status Forward(const ForwardBatch& batch) const = 0;
};

std::unique_ptr<DeviceGroup> MakePalimpsaGroup(const GroupSetup& setup);
std::unique_ptr<DeviceGroup> MakeVlaGroup(const GroupSetup& setup);
std::unique_ptr<DeviceGroup> MakeOvqGroup(const GroupSetup& setup);
std::unique_ptr<DeviceGroup> MakeWindowGroup(const GroupSetup& setup);
std::unique_ptr<DeviceGroup> MakeSvGroup(const GroupSetup& setup);

// A part of the group's own columns, in a buffer of its own.
float* AddSplit(const GroupSetup& setup, int64_t begin, int64_t num_columns, elementwise::Map map,
                std::vector<elementwise::SplitPart>* parts);
// The buffer of the group's reads, joined as they are, or with a factor or a gain.
float* AddJoin(const GroupSetup& setup, const float* factor, const float* gain);

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_DEVICE_GROUP_H_
