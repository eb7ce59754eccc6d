// LayerState, LayerSnapshot: what one layer of the model carries from token to token, and its
// forward pass.
//
// Equation:  docs/model-format.md 2.1-2.3, residual added in place.
// Shapes:    x: [count][width] f32, in and out; count 1 ... kBlockTokens.
// Units:     ranks from 0.
// Requires:  weights and config outlive the state. Restore: a snapshot of this object or of one
//            that it was cloned from.
// Rejects:   Forward: INTERNAL when an activation is not finite; then only Restore or destruction.
// Effects:   Forward advances the state by count tokens.
// Numerics:  bits are a function of the token sequence alone, whatever the cut into calls.
// Threads:   compatible.
#ifndef LETHE_SERVER_MODEL_LAYER_STATE_H_
#define LETHE_SERVER_MODEL_LAYER_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "audit/state/state_digest.h"
#include "kernels/base/byte_io.h"
#include "memory/svdd/sv_memory.h"
#include "server/model/config.h"
#include "server/model/weights.h"
#include "server/model/workspace.h"

namespace lethe {

class LayerSnapshot {
 public:
  virtual ~LayerSnapshot() = default;
  virtual size_t state_bytes() const = 0;
  // As LayerState::ReadSnapshot takes it.
  virtual void AppendTo(ByteWriter* out) const = 0;
};

class LayerState {
 public:
  virtual ~LayerState() = default;
  virtual absl::Status Forward(int64_t count, absl::Span<float> x, Workspace* workspace) = 0;
  virtual std::unique_ptr<LayerSnapshot> Snapshot() const = 0;
  virtual absl::Status Restore(const LayerSnapshot& snapshot) = 0;
  // A snapshot that AppendTo wrote, of a layer with this configuration. DATA_LOSS for bytes that it does not write.
  virtual absl::StatusOr<std::unique_ptr<LayerSnapshot>> ReadSnapshot(ByteReader* in) const = 0;
  // What Restore of a read snapshot needs of the tokens of ranks first ... end - 1 besides it; in a layer that has taken
  // no token, ReadInputs puts it behind what was read before.
  virtual void AppendInputs(int64_t /*first*/, int64_t /*end*/, ByteWriter* /*out*/) const {}
  virtual absl::Status ReadInputs(int64_t /*first*/, int64_t /*end*/, ByteReader* /*in*/) {
    return absl::OkStatus();
  }
  virtual std::unique_ptr<LayerState> Clone() const = 0;
  // Appends this layer's parts; names start with `prefix` ("layer.3").
  virtual void AppendDigestParts(const std::string& prefix, audit::StateParts* parts) const = 0;
  virtual size_t state_bytes() const = 0;
  // Support-vector memories by group index; null for other kinds. Empty for layers without groups.
  virtual std::vector<const svdd::SvMemory*> SvMemories() const { return {}; }
  // Only for Fault::kGridNotRealigned: leaves `count` masked slots in the layer's memories.
  virtual absl::Status SkipSlots(int64_t /*count*/) { return absl::OkStatus(); }
};

std::unique_ptr<LayerState> MakeLocalLayerState(const LocalLayerConfig& config,
                                                const LocalWeights& weights, float norm_eps);
std::unique_ptr<LayerState> MakeMlpLayerState(const MlpWeights& weights, float norm_eps);
// x += w_down (silu(w_gate h) * (w_up h)) with h = rms_norm(x, norm).
void AddSwiglu(const MlpWeights& weights, float norm_eps, int64_t count, absl::Span<float> x,
               Workspace* workspace);

// x += y, element by element.
void AddInPlace(absl::Span<const float> y, absl::Span<float> x);

// True when no element is infinite or NaN.
bool AllFinite(absl::Span<const float> values);

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_LAYER_STATE_H_
