// SupportRows: the keys, values and weights of a memory's support side by side, for reads.
//
// Equation:  none.
// Shapes:    keys [size][key_dim], values [size][value_dim], a [size], in rank order.
// Units:     a in (0, 1].
// Requires:  Update: sizes that match (LETHE_CHECK).
// Rejects:   none.
// Effects:   a cache beside the state. Update gathers rows only when other inputs are in the support
//            than before; what it drops is overwritten. Clear overwrites all.
// Numerics:  copies.
// Threads:   compatible.
#ifndef LETHE_SERVER_VECTOR_SESSION_SUPPORT_ROWS_H_
#define LETHE_SERVER_VECTOR_SESSION_SUPPORT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "kernels/base/wiped.h"
#include "memory/svdd/problem.h"
#include "server/session/inputs.h"
#include "server/vector_session/vector_rows.h"

namespace lethe {

class SupportRows {
 public:
  void Update(const svdd::Solution& solution, const Inputs& inputs, const VectorRows& rows);
  void Clear();

  size_t size() const { return a_.size(); }
  absl::Span<const double> keys() const { return keys_; }
  absl::Span<const double> values() const { return values_; }
  absl::Span<const double> a() const { return a_; }
  size_t state_bytes() const;

 private:
  std::vector<uint64_t> token_ids_;
  WipedVector<double> keys_;
  WipedVector<double> values_;
  WipedVector<double> a_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_VECTOR_SESSION_SUPPORT_ROWS_H_
