// SvMemory: the state of a group of support-vector attention heads (kind sv of
// docs/model-format.md), hybrid read.
//
// Equation:  at every boundary s = 64j the gate a is the canonical solution (canonical.h) on keys
//            0..s-1. For token t in [s, s+63]: w_i = exp(l_i - max l), l_i = beta sqrt(K) q.k_i,
//            times a_i for i < s, times 1 for s <= i <= t; o_t = sum w_i v_i / sum w_i. The maximum
//            is over the gated keys with a_i > 0 and the local ones.
// Shapes:    q, k: [count][H][K], l2-normalised by the caller; v: [count][H][V]; log_decay,
//            precision, write_direction: empty. out: [count][H][V].
// Units:     beta multiplies sqrt(K) q.k, one per head.
// Requires:  as memory.h.
// Rejects:   Create: INVALID_ARGUMENT that names the option and its range. Step, Write: OUT_OF_RANGE
//            when an input or a read is not finite, FAILED_PRECONDITION when n u_kappa exceeds
//            ridge/2; then only Restore, Edited (or destruction) may follow. Restore:
//            INVALID_ARGUMENT for a snapshot of another kind or shape. Edited: INVALID_ARGUMENT for
//            ranks that are not as SvEdit says, sizes that differ and keys beyond problem.h; else as
//            Step.
// Effects:   as memory.h. A token is read after its key joined the local part; the gate is solved
//            inside Step or Write when num_tokens() reaches a multiple of 64. A snapshot holds
//            ranks and gates, no keys or values (Restore truncates the ones present), so it is
//            valid only under the contract of memory.h. Clone copies keys, values and gates, not
//            the solver's caches. Edited carries over the solver's Gram rows, classes and a of what
//            stays, as one warm start at the last boundary; no byte of its result depends on a
//            removed token or on the old key and value of a replaced one. Snapshots of this memory
//            up to the first removed or replaced rank hold for the result as well.
// Numerics:  f32 reads (8 fixed lanes over key components, support in rank order then local
//            tokens), f64 gates; bits are a function of the token sequence alone. Cost per token
//            O(H ((D + 64) K + (|S u E| + 64) V)), D distinct keys of S u E, plus the solve.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_SV_MEMORY_H_
#define LETHE_MEMORY_SVDD_SV_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/sv_read/sv_read.h"
#include "memory/memory.h"
#include "memory/svdd/canonical.h"
#include "memory/svdd/problem.h"

namespace lethe::svdd {

struct SvOptions {
  int64_t num_heads = 1;
  int64_t key_dim = 64;
  int64_t value_dim = 64;
  double sigma = 1.0;
  double box_mass = 256.0;
  double ridge = 0x1.0p-11;
  std::vector<float> beta;  // [H], finite
};

// One head, as the server writes it to the digest, a certificate or a proof bundle.
struct SvHeadView {
  const Params* params = nullptr;
  const Solution* solution = nullptr;  // of the gated keys; num_keys = 0 before the first boundary
  absl::Span<const float> gated_keys;  // [num_keys][K]
  absl::Span<const float> gated_values;  // [num_keys][V]
  absl::Span<const float> tail_keys;     // [num_tokens - num_keys][K], not gated yet
  absl::Span<const float> tail_values;   // [num_tokens - num_keys][V]
};

// A change of the retained tokens (a Forget, seen by one memory).
struct SvEdit {
  std::vector<int64_t> removed;  // ranks before the change, ascending
  std::vector<int64_t>
      replaced;  // ranks before, ascending, none of them removed: key and value are new
  absl::Span<const float> keys;    // [replaced.size()][H][K]
  absl::Span<const float> values;  // [replaced.size()][H][V]
};

class SvMemory final : public Memory {
 public:
  static absl::StatusOr<std::unique_ptr<SvMemory>> Create(const SvOptions& options);
  ~SvMemory() override;

  absl::Status Step(const MemoryInputs& inputs, int64_t count, absl::Span<float> out) override;
  absl::Status Write(const MemoryInputs& inputs, int64_t count) override;
  std::unique_ptr<MemorySnapshot> Snapshot() const override;
  absl::Status Restore(const MemorySnapshot& snapshot) override;
  absl::StatusOr<std::unique_ptr<MemorySnapshot>> ReadSnapshot(ByteReader* in) const override;
  std::unique_ptr<Memory> Clone() const override;

  // Keys and values of the tokens of ranks first ... end - 1, which a read snapshot needs in place: ReadInputs puts them
  // behind those that are there, of a memory that then restores a snapshot before anything else. DATA_LOSS for bytes that
  // AppendInputs does not write.
  void AppendInputs(int64_t first, int64_t end, ByteWriter* out) const;
  absl::Status ReadInputs(ByteReader* in);

  // A memory that is, bit for bit, the one stepped from empty through the tokens after the change;
  // this one stays as it is. After a Step that failed num_tokens() counts what stood before it; the
  // tokens of that Step which some head took are not in the result, whether `removed` names them or
  // not. Counters start at 0.
  absl::StatusOr<std::unique_ptr<SvMemory>> Edited(const SvEdit& edit) const;

  // Per head: f64 sigma, M, ridge; u64 gated keys; f64 rho; u64 rows, then per row of the margin
  // and error sets in rank order u64 rank, u64 class, f64 a; then the tail: array f32 keys, array
  // f32 values. Gated keys and values enter the digest through the server's Merkle root (head()).
  void AppendCanonicalState(ByteWriter* out) const override;
  int64_t num_tokens() const override { return num_tokens_; }
  size_t state_bytes() const override;

  // Valid until the next non-const call.
  SvHeadView head(int64_t head) const;
  // What reads behind the last boundary take of it. Valid until the next non-const call.
  SvSupport support(int64_t head) const;
  int64_t num_heads() const { return options_.num_heads; }
  // Summed over the heads.
  Counters counters() const;

 private:
  struct Head;

  explicit SvMemory(const SvOptions& options);

  // Step and Write; out empty: no reads.
  absl::Status Advance(const MemoryInputs& inputs, int64_t count, absl::Span<float> out);

  SvOptions options_;
  int64_t num_tokens_ = 0;
  std::vector<std::unique_ptr<Head>> heads_;
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SV_MEMORY_H_
