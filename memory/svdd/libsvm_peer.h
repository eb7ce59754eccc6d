// TrainLibsvm: the yardstick of the one-class solver, where libsvm was found when this was built.
//
// Equation:  libsvm's one-class machine with the kernel exp(-|x - y|^2 / sigma^2): with a constant
//            diagonal the optimum of memory/svdd/problem.h up to scaling, without a ridge.
// Shapes:    keys [n][dim] row-major.
// Units:     cache in MB.
// Requires:  HasLibsvm() (LETHE_CHECK).
// Rejects:   none.
// Effects:   libsvm's progress is not printed. The model is thrown away: what counts is the time.
// Numerics:  eps is libsvm's tolerance; shrinking as svm-train's default.
// Threads:   one at a time.
#ifndef LETHE_MEMORY_SVDD_LIBSVM_PEER_H_
#define LETHE_MEMORY_SVDD_LIBSVM_PEER_H_

#include <cstddef>

#include "absl/types/span.h"

namespace lethe::svdd {

struct LibsvmSettings {
  size_t dim = 1;
  double sigma = 1.0;
  double nu = 0.1;
  double eps = 1e-9;
  double cache_mb = 256.0;
};

bool HasLibsvm();
// As svm.h counts it: 324 for 3.24; 0 without.
int LibsvmVersion();
void TrainLibsvm(absl::Span<const double> keys, const LibsvmSettings& settings);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_LIBSVM_PEER_H_
