// DeviceModel: the weights of a Model in the memory of one queue's device, in the form that the batched
// kernels take.
//
// Equation:  docs/model-format.md section 2.
// Shapes:    as docs/model-format.md.
// Units:     bytes.
// Requires:  the queue outlives the object and everything made from it (StatePool, DeviceForward).
// Rejects:   Create: UNIMPLEMENTED that names the layer for a memory that the device does not run;
//            RESOURCE_EXHAUSTED when the device is full.
// Effects:   immutable after Create.
// Numerics:  a weight keeps its value; sums over weights as the batched kernels say.
// Threads:   the queue's owner; model(), weight_bytes() and slot_bytes() are safe.
#ifndef LETHE_SERVER_DEVICE_DEVICE_MODEL_H_
#define LETHE_SERVER_DEVICE_DEVICE_MODEL_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "kernels/base/queue.h"
#include "server/model/model.h"

namespace lethe {

struct DeviceLayerWeights;
struct DeviceHeadWeights;

class DeviceModel {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceModel>> Create(Queue* queue,
                                                             std::shared_ptr<const Model> model);
  ~DeviceModel();

  const Model& model() const { return *model_; }
  Queue* queue() const { return queue_; }
  size_t weight_bytes() const { return weight_bytes_; }
  // Of one session's state in a StatePool; without what sv groups keep (sv_session.h).
  size_t slot_bytes() const { return slot_bytes_; }

  const DeviceLayerWeights& layer(size_t index) const { return *layers_[index]; }
  const DeviceHeadWeights& head() const { return *head_; }

 private:
  DeviceModel(Queue* queue, std::shared_ptr<const Model> model);

  Queue* queue_;
  std::shared_ptr<const Model> model_;
  std::vector<std::unique_ptr<DeviceLayerWeights>> layers_;
  std::unique_ptr<DeviceHeadWeights> head_;
  size_t weight_bytes_ = 0;
  size_t slot_bytes_ = 0;
};

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_DEVICE_MODEL_H_
