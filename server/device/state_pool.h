// StatePool, SlotImage: the streaming states of many sessions in one device's memory, a slot each.
//
// Equation:  none; what the layers of docs/model-format.md section 2 carry from token to token: tails of
//            convolutions, windows, and the memories of every kind but sv (sv_session.h).
// Shapes:    one array a part, [num_slots][the part's size]; a SlotImage is one slot's parts in order.
// Units:     bytes; slots from 0; num_tokens counts the tokens that a slot's state has taken.
// Requires:  num_slots >= 1; slots that Allocate gave and nobody freed (LETHE_CHECK); the model outlives the pool;
//            CopyFromHost: an image of a pool of this model.
// Rejects:   Create: RESOURCE_EXHAUSTED with the bytes asked for. Allocate: RESOURCE_EXHAUSTED when every
//            slot is taken. CopyFromHost: INVALID_ARGUMENT for an image of another size. All: INTERNAL
//            with the device's message.
// Effects:   Allocate gives a state of rank 0. Free overwrites the slot with zeros. CopyToHost and the
//            digest wait for the queue, everything else is enqueued. An image is overwritten before it is
//            freed, as is the pool.
// Numerics:  copies keep every bit. Digest parts have the bytes and names of ModelState's.
// Threads:   compatible; the queue's owner. A SlotImage is a value.
#ifndef LETHE_SERVER_DEVICE_STATE_POOL_H_
#define LETHE_SERVER_DEVICE_STATE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "audit/state/state_digest.h"
#include "kernels/base/wiped.h"
#include "server/device/device_model.h"

namespace lethe {

using SlotImage = WipedVector<std::byte>;

class SlotArrays;
class SvSession;

class StatePool {
 public:
  static absl::StatusOr<std::unique_ptr<StatePool>> Create(const DeviceModel* model,
                                                           int32_t num_slots);
  ~StatePool();

  int32_t num_slots() const { return static_cast<int32_t>(is_taken_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_slots_.size()); }

  absl::StatusOr<int32_t> Allocate();
  absl::Status Free(int32_t slot);

  // Of rank 0.
  SlotImage InitialImage() const;
  absl::StatusOr<SlotImage> CopyToHost(int32_t slot) const;
  absl::Status CopyFromHost(const SlotImage& image, int32_t slot);
  absl::Status CopySlot(int32_t from, int32_t to);

  // Parts "layer.0..." of docs/state-digest.md. "options" and "tokens" are not among them. The head and memory parts of sv groups are
  // among them where `sv` is given, which has been synced; an sv group's convolution tails always are.
  absl::Status AppendDigestParts(int32_t slot, int64_t num_tokens, audit::StateParts* parts,
                                 const SvSession* sv = nullptr) const;
  // The same of an image, which needs no device.
  void AppendDigestParts(const SlotImage& image, int64_t num_tokens, audit::StateParts* parts,
                         const SvSession* sv = nullptr) const;

  const SlotArrays& arrays() const { return *arrays_; }

 private:
  explicit StatePool(const DeviceModel* model);
  bool IsTaken(int32_t slot) const;

  const DeviceModel* model_;
  std::unique_ptr<SlotArrays> arrays_;
  std::vector<int32_t> free_slots_;        // the lowest last
  std::vector<bool> is_taken_;             // by slot
  DeviceArray<std::byte> initial_;         // image of rank 0
  mutable DeviceArray<std::byte> staged_;  // image on its way; zeros between calls
};

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_STATE_POOL_H_
