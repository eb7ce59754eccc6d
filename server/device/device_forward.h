// DeviceForward, ForwardSequence: one pass of a model over the next tokens of many sessions, whose states
// lie in a StatePool.
//
// Equation:  docs/model-format.md section 2 for every sequence on its own; every memory folds step by
//            step, at every rank.
// Shapes:    logits: [vocab_size] f32, all_logits: [count][vocab_size], on the host.
// Units:     ranks from 0: `rank` counts the tokens that the slot's state has taken.
// Requires:  vocab_ids in [0, vocab_size), at least one token a sequence, slots of the pool that differ
//            from each other, the rank that the slot stands at; for a model with sv groups an SvSession of
//            its own at that rank (LETHE_CHECK of what the host sees); model and pool outlive the object.
// Rejects:   Create: INVALID_ARGUMENT that names the limit and its range, RESOURCE_EXHAUSTED when the
//            device is full. Evaluate: INVALID_ARGUMENT for more sequences or tokens than the limits;
//            INTERNAL with the device's message, after which the states are of no further use. A
//            sequence's own status: INTERNAL when one of its activations is not finite or a gate
//            cannot be solved; then its slot may only be freed or overwritten, and its logits are not
//            written. Its mates are not touched.
// Effects:   advances the slots' states and SvSessions (at ranks 64j a pass ends and gates are solved);
//            finished on return. Buffers are allocated once, by the limits.
//            They hold what the last call's sequences left until the next call or Wipe, which overwrites
//            activations, metadata, workspaces and host buffers with zeros and waits for it.
// Numerics:  state and logits are functions of the sequence's tokens alone: not of the cut into calls, the
//            mates, the slot. On the host queue their bits are ModelState's.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_SERVER_DEVICE_DEVICE_FORWARD_H_
#define LETHE_SERVER_DEVICE_DEVICE_FORWARD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "server/device/device_model.h"
#include "server/device/state_pool.h"

namespace lethe {

class ForwardPass;
class SvSession;

struct ForwardSequence {
  int32_t slot = 0;
  int64_t rank = 0;  // of the first of vocab_ids
  absl::Span<const int32_t> vocab_ids;
  float* logits = nullptr;      // after the last token, or null
  float* all_logits = nullptr;  // after every token, or null
  SvSession* sv = nullptr;      // null for a model without sv groups
};

struct ForwardLimits {
  int64_t max_tokens = 512;     // of all sequences of a call, 1 ... 65536
  int64_t max_sequences = 256;  // 1 ... 4096
  bool uses_graphs = true;      // on CUDA: a decode step of a size that recurs is one launch
  int64_t solver_threads = 1;   // that solve the gates of sv groups at a boundary, 1 ... 256
};

class DeviceForward {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceForward>> Create(const DeviceModel* model,
                                                               StatePool* pool,
                                                               const ForwardLimits& limits);
  ~DeviceForward();

  // A status for each sequence.
  absl::StatusOr<std::vector<absl::Status>> Evaluate(absl::Span<const ForwardSequence> sequences);

  absl::Status Wipe();

  const ForwardLimits& limits() const { return limits_; }
  // Steps that are recorded for one launch: sizes of batches that recurred.
  size_t num_graphs() const;

 private:
  DeviceForward(const DeviceModel* model, StatePool* pool, const ForwardLimits& limits);
  absl::Status CheckSequences(absl::Span<const ForwardSequence> sequences) const;

  const DeviceModel* model_;
  StatePool* pool_;
  ForwardLimits limits_;
  std::unique_ptr<ForwardPass> pass_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_DEVICE_FORWARD_H_
