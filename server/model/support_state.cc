#include "server/model/support_state.h"

namespace lethe {

audit::SupportState SupportStateOf(const svdd::Params& params, const svdd::Solution& solution,
                                   const audit::Sha256Digest& inputs_root) {
  audit::SupportState support;
  support.sigma = params.sigma;
  support.box_mass = params.box_mass;
  support.ridge = params.ridge;
  support.num_gated = static_cast<uint64_t>(solution.num_keys);
  support.rho = solution.rho;
  for (size_t rank = 0; rank < solution.classes.size(); ++rank) {
    if (solution.classes[rank] == svdd::Partition::kReserve) continue;
    const bool margin = solution.classes[rank] == svdd::Partition::kMargin;
    support.rows.push_back({rank,
                            margin ? audit::SupportClass::kMargin : audit::SupportClass::kError,
                            solution.a[rank]});
  }
  support.inputs_root = inputs_root;
  return support;
}

}  // namespace lethe
