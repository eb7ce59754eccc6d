// VlaRef: Variational Linear Attention in double precision, in the paper's order, one head.
//
// Equation:  as vla.h, with z z^T divided by its denominator as written there.
// Shapes:    K = A.rows(), V = S.rows(). k, q, u: [K]; v, read: [V]; A: [K][K]; S: [V][K]; key_sum:
//            [K].
// Units:     step_count counts the tokens seen.
// Requires:  vectors of these sizes (LETHE_CHECK).
// Rejects:   none.
// Effects:   Step advances the state and overwrites read, alpha and key_unit of that token.
// Numerics:  plain double loops: an oracle, never part of a state.
// Threads:   compatible.
#ifndef LETHE_KERNELS_VLA_VLA_REF_H_
#define LETHE_KERNELS_VLA_VLA_REF_H_

#include <cstdint>
#include <vector>

#include "kernels/vla/vla.h"

namespace lethe {

class VlaRef {
 public:
  // num_heads is ignored.
  explicit VlaRef(const VlaOptions& options);

  void Step(const std::vector<double>& q, const std::vector<double>& k,
            const std::vector<double>& v, const std::vector<double>& u);

  const std::vector<double>& a() const { return a_; }
  const std::vector<double>& s() const { return s_; }
  const std::vector<double>& key_sum() const { return key_sum_; }
  const std::vector<double>& read() const { return read_; }
  const std::vector<double>& alpha() const { return alpha_; }  // the last token's write vector
  const std::vector<double>& key_unit() const { return key_unit_; }  // the last token's l2(k)

 private:
  void UpdateA(const std::vector<double>& u);
  void Read(const std::vector<double>& q);

  VlaOptions options_;
  size_t key_dim_;
  size_t value_dim_;
  int64_t step_count_ = 0;
  std::vector<double> a_;
  std::vector<double> s_;
  std::vector<double> key_sum_;
  std::vector<double> read_;
  std::vector<double> alpha_;
  std::vector<double> key_unit_;
};

}  // namespace lethe

#endif  // LETHE_KERNELS_VLA_VLA_REF_H_
