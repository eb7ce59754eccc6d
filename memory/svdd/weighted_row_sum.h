// WeightedRowSum: a combination of rows of the Gram matrix, from kept rows or from rows that are
// evaluated for it alone.
//
// Equation:  sums_i = sum_k factors_k K(indices_k, i) for all groups i, blocks of 8 indices at a
//            time in the order given.
// Shapes:    indices, factors: [count]; sums: [num_groups].
// Units:     none.
// Requires:  spans of one size (LETHE_CHECK); groups below num_groups().
// Rejects:   none.
// Effects:   keeps the rows that it evaluates if those of all indices take at most keep_bytes: rows
//            that are used once cost fresh memory otherwise, which costs more than their values.
// Numerics:  f64: |error| <= (count/8 + 10) 2^-53 sum |factors| K; the bits do not depend on which
//            rows are kept. Evaluates O(missing rows num_groups) kernel values.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_WEIGHTED_ROW_SUM_H_
#define LETHE_MEMORY_SVDD_WEIGHTED_ROW_SUM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "memory/svdd/gram_cache.h"

namespace lethe::svdd {

void WeightedRowSum(GramCache* gram, absl::Span<const int64_t> indices,
                    absl::Span<const double> factors, std::vector<double>* sums,
                    size_t keep_bytes = GramCache::kRowBytes);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_WEIGHTED_ROW_SUM_H_
