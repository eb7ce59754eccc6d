// PackedSequences: which rows of a packed batch are which session's tokens.
//
// Shapes:   a packed array is [num_tokens][…], sequence s has rows offsets[s] … offsets[s+1] - 1 in rank
//           order. offsets: [num_sequences+1], from 0 to num_tokens, ascending, equal for an empty
//           sequence; slots, ranks: [num_sequences].
// Units:    ranks count the tokens that the sequence's state has taken before this call.
// Requires: the three arrays on the device of the queue that the batch is used with; no two sequences of
//           one slot; longest at least the longest sequence's length (launch geometry, never bits).
// Rejects:  none.
// Effects:  none.
// Numerics: none.
// Threads:  a value.
#ifndef LETHE_KERNELS_BASE_PACKED_SEQUENCES_H_
#define LETHE_KERNELS_BASE_PACKED_SEQUENCES_H_

#include <cstdint>

namespace lethe {

struct PackedSequences {
  int64_t num_sequences = 0;
  int64_t num_tokens = 0;
  int64_t longest = 0;
  const int64_t* offsets = nullptr;
  const int32_t* slots = nullptr;  // whose state, in a pool of states
  const int64_t* ranks = nullptr;  // of each sequence's first token
};

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_PACKED_SEQUENCES_H_
