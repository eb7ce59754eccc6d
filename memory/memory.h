// Memory: the state of one group of heads of one memory layer of one session.
//
// The one interface through which the model evaluates SV-Attention, Palimpsa, VLA, OVQ and window
// attention. A Memory is a fold: Step takes the next tokens in rank order, and its state and every
// output are, bit for bit, a function of the token sequence alone, however the sequence was cut into
// calls of Step and of Write, which is Step without the reads. Chunk-bound events (OVQ merges,
// support-vector gate solves) happen at ranks 64j inside either.
//
// Shapes:   q, k: [count][H][K] f32, v: [count][H][V] f32, out: [count][H][V] f32, row-major.
// Requires: inputs finite; spans of exactly these sizes (checked by LETHE_CHECK).
// Effects:  Step and Write advance num_tokens() by count. Restore(s) requires a snapshot taken by
//           the same object (or by the object it was cloned from) and that the first s.num_tokens()
//           tokens have not changed since; it then forgets everything after that rank, leaving no
//           byte that depends on it. A snapshot that was read counts as the object's own, given the same
//           tokens, and for kinds that keep keys these (SvMemory::ReadInputs).
// Numerics: f32 state (f64 in the support-vector solver), fixed orders of summation, no libm.
// Threads:  compatible.
#ifndef LETHE_MEMORY_MEMORY_H_
#define LETHE_MEMORY_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/byte_io.h"

namespace lethe {

// The grid of design rule 1: boundaries are the ranks that are multiples of it.
inline constexpr int64_t kChunkTokens = 64;

// What the layer hands to a memory for `count` tokens; a kind that does not use a field gets it empty.
struct MemoryInputs {
  absl::Span<const float> q;                // [count][H][K]
  absl::Span<const float> k;                // [count][H][K]
  absl::Span<const float> v;                // [count][H][V] Palimpsa: the gated write v~
  absl::Span<const float> log_decay;        // [count][H]    Palimpsa: natural log, <= 0
  absl::Span<const float> precision;        // [count][H][V] Palimpsa: b >= 0
  absl::Span<const float> write_direction;  // [count][H][K] VLA: u
};

// A state that Restore can return to. Immutable; holds no pointer into the Memory.
class MemorySnapshot {
 public:
  virtual ~MemorySnapshot() = default;
  virtual int64_t num_tokens() const = 0;
  virtual size_t state_bytes() const = 0;
  // As Memory::ReadSnapshot takes it.
  virtual void AppendTo(ByteWriter* out) const = 0;
};

class Memory {
 public:
  virtual ~Memory() = default;

  // Evaluates the next `count` >= 1 tokens and writes their reads.
  virtual absl::Status Step(const MemoryInputs& inputs, int64_t count, absl::Span<float> out) = 0;

  // Advances the state by `count` >= 1 tokens as Step does, bit for bit, without their reads;
  // inputs.q may be empty (it is not used). A state beyond f32 shows in the next Step's reads.
  virtual absl::Status Write(const MemoryInputs& inputs, int64_t count) = 0;

  virtual std::unique_ptr<MemorySnapshot> Snapshot() const = 0;
  virtual absl::Status Restore(const MemorySnapshot& snapshot) = 0;
  // A snapshot that AppendTo wrote, of a memory with these options. DATA_LOSS for bytes that it does not write.
  virtual absl::StatusOr<std::unique_ptr<MemorySnapshot>> ReadSnapshot(ByteReader* in) const = 0;
  virtual std::unique_ptr<Memory> Clone() const = 0;

  // The canonical bytes of the state that enters the digest (design 2.2): a function of the token
  // sequence alone. Support-vector keys and values enter through their Merkle root instead.
  virtual void AppendCanonicalState(ByteWriter* out) const = 0;

  virtual int64_t num_tokens() const = 0;
  virtual size_t state_bytes() const = 0;  // bytes held for this state, caches included
};

}  // namespace lethe

#endif  // LETHE_MEMORY_MEMORY_H_
