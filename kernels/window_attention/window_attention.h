// WindowAttention: softmax attention over the last `window` tokens with ALiBi, its tail as state.
//
// Equation:  per head, o_t = sum_{j=0}^{min(window-1,t)} p_j v_{t-j}, p = softmax_j(q_t . k_{t-j} /
//            sqrt(K) - slope j) (docs/model-format.md 2.1; ALiBi: Press et al. 2022).
// Shapes:    q, k: [count][H][K], v, o: [count][H][V] f32 row-major; slopes: [H]; count = 0 is a
//            no-op. window >= 1; window 1 has no state and gives o = v. K and V are multiples of 8.
// Units:     slope per token of distance.
// Requires:  sizes as stated, o does not overlap the inputs (LETHE_CHECK on sizes); finite inputs.
// Rejects:   WindowAttentionState::Read: DATA_LOSS when the bytes do not hold a state of this
//            shape.
// Effects:   WindowAttention writes o and moves the state on by count tokens. The state is a value:
//            copy it to take a snapshot, assign to go back. It is the last min(n, window-1) rows of
//            K and V and nothing else: absent rows are zero bytes.
// Numerics:  f32. Every reduction over the window is indexed by the distance j from the query,
//            never by a block or buffer position: the maximum, the sum of weights in the 8 lanes of
//            kernels/math's Sum (lane = j mod 8), and o as one fma chain over j = 0, 1, … per
//            channel, divided by that sum. Absent tokens are not evaluated: exact no-ops. Bits are
//            independent of how the tokens are cut into calls and of the rank. Cost O(count H
//            window (K + V)).
// Threads:   compatible.
#ifndef LETHE_KERNELS_WINDOW_ATTENTION_WINDOW_ATTENTION_H_
#define LETHE_KERNELS_WINDOW_ATTENTION_WINDOW_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "kernels/base/byte_io.h"

namespace lethe {

struct WindowAttentionShape {
  int64_t num_heads = 0;  // H
  int64_t key_dim = 0;    // K
  int64_t value_dim = 0;  // V
  int64_t window = 1;     // tokens, the current one included

  friend bool operator==(const WindowAttentionShape&, const WindowAttentionShape&) = default;
};

class WindowAttentionState {
 public:
  WindowAttentionState() = default;  // no heads
  explicit WindowAttentionState(const WindowAttentionShape& shape);

  const WindowAttentionShape& shape() const { return shape_; }
  int64_t num_rows() const { return num_rows_; }  // min(n, window - 1) present rows
  // The [H][K] or [H][V] row `distance` >= 1 tokens before the next one, distance <= num_rows().
  const float* key_row(int64_t distance) const;
  const float* value_row(int64_t distance) const;
  size_t state_bytes() const { return (keys_.size() + values_.size()) * sizeof(float); }

  // Takes the last rows of k: [count][H][K] and v: [count][H][V].
  void Append(absl::Span<const float> k, absl::Span<const float> v);
  // Back to rank 0.
  void Clear();

  // The present rows of K, then of V, each oldest first and as one array.
  void AppendTo(ByteWriter* out) const;
  // On error the state is unchanged.
  absl::Status Read(ByteReader* in);

 private:
  int64_t Slot(int64_t distance) const;

  WindowAttentionShape shape_;
  int64_t num_rows_ = 0;
  int64_t next_slot_ = 0;      // of the ring of window-1 slots: where the next row goes
  std::vector<float> keys_;    // [window-1][H][K]
  std::vector<float> values_;  // [window-1][H][V]
};

void WindowAttention(absl::Span<const float> slopes, absl::Span<const float> q,
                     absl::Span<const float> k, absl::Span<const float> v, int64_t count,
                     WindowAttentionState* state, absl::Span<float> o);

// The oracle, over a whole sequence from rank 0, in double.
void WindowAttentionRef(const WindowAttentionShape& shape, absl::Span<const float> slopes,
                        absl::Span<const float> q, absl::Span<const float> k,
                        absl::Span<const float> v, absl::Span<double> o);

}  // namespace lethe

#endif  // LETHE_KERNELS_WINDOW_ATTENTION_WINDOW_ATTENTION_H_
