// PalimpsaTree: the mutant kTreeOverChunks: sums a call's tokens pairwise before they reach the
// state.
//
// Equation:  the associative scan of papers.md 2.1 over the tokens of one call, applied to the
//            state at the end: (M_b + F_b M_a, I_b + F_b I_a, F_a F_b). Right to rounding, but its
//            bits depend on the cut into calls, which is why the memory folds by rank (design.md
//            2).
// Shapes:    as palimpsa.h.
// Units:     none.
// Requires:  as palimpsa.h, count >= 1.
// Rejects:   none.
// Effects:   updates m and i_bar. Called under FaultActive(Fault::kTreeOverChunks) only.
// Numerics:  f32.
// Threads:   safe for distinct states.
#ifndef LETHE_MEMORY_PALIMPSA_PALIMPSA_TREE_H_
#define LETHE_MEMORY_PALIMPSA_PALIMPSA_TREE_H_

#include <cstdint>

#include "absl/types/span.h"

#include "kernels/palimpsa/palimpsa.h"

namespace lethe {

void PalimpsaTree(const PalimpsaShape& shape, const PalimpsaInputs& inputs, int64_t count,
                  absl::Span<float> m, absl::Span<float> i_bar);

}  // namespace lethe

#endif  // LETHE_MEMORY_PALIMPSA_PALIMPSA_TREE_H_
