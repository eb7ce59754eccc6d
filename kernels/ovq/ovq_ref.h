// OvqRef: Online Vector Quantised attention in double precision, in the paper's order, one head.
//
// Equation:  as ovq.h. A slot's update is written as in the paper, D <- D + sum (k - D) / c_new.
// Shapes:    q, k: [K] raw (Step normalises); v, read: [V]; assignment: [L].
// Units:     beta multiplies sqrt(K) q^ k^.
// Requires:  vectors of these sizes (LETHE_CHECK).
// Rejects:   none.
// Effects:   Step adds a token to the chunk and reads; Merge must follow every L-th Step. It
//            chooses the assignments itself, or replays a device's, because a choice between
//            candidates that differ by rounding is no error.
// Numerics:  plain double loops and the C library's exp and log: an oracle, never part of a state.
// Threads:   compatible.
#ifndef LETHE_KERNELS_OVQ_OVQ_REF_H_
#define LETHE_KERNELS_OVQ_OVQ_REF_H_

#include <cstdint>
#include <vector>

#include "kernels/ovq/ovq.h"

namespace lethe {

class OvqRef {
 public:
  OvqRef(const OvqShape& shape, double beta);

  std::vector<double> Step(const std::vector<double>& q, const std::vector<double>& k,
                           const std::vector<double>& v);

  // For each of the chunk's tokens n if it joins slot n, ~n if it opens it, by the rules of ovq.h.
  std::vector<int32_t> ChooseAssignment() const;

  // How far an assignment falls short of the rules, as a similarity: 0 for ChooseAssignment's. A
  // seed that is more similar than a token that joined, or a join that is not the best one, counts
  // by the difference.
  double AssignmentShortfall(const std::vector<int32_t>& assignment) const;

  void Merge(const std::vector<int32_t>& assignment);

  int64_t num_slots() const { return static_cast<int64_t>(counts_.size()); }
  int64_t num_new_slots() const;  // that the pending chunk will open
  const std::vector<std::vector<double>>& slot_keys() const { return slot_keys_; }
  const std::vector<std::vector<double>>& slot_values() const { return slot_values_; }
  const std::vector<int64_t>& counts() const { return counts_; }
  const std::vector<std::vector<double>>& chunk_keys() const { return chunk_keys_; }

 private:
  // Similarity by which token i is judged for opening a slot: to token 0 in the first chunk, else
  // to its best slot.
  double Novelty(size_t i) const;

  OvqShape shape_;
  double logit_scale_;
  int64_t merged_tokens_ = 0;
  std::vector<std::vector<double>> slot_keys_;
  std::vector<std::vector<double>> slot_values_;
  std::vector<int64_t> counts_;
  std::vector<std::vector<double>> chunk_keys_;
  std::vector<std::vector<double>> chunk_values_;
};

}  // namespace lethe

#endif  // LETHE_KERNELS_OVQ_OVQ_REF_H_
