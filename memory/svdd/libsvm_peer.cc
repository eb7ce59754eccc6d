#include "memory/svdd/libsvm_peer.h"

#include <vector>

#include "kernels/base/check.h"

#ifdef LETHE_HAVE_LIBSVM
#include <libsvm/svm.h>
#endif

namespace lethe::svdd {

#ifdef LETHE_HAVE_LIBSVM
bool HasLibsvm() { return true; }
int LibsvmVersion() { return libsvm_version; }

void TrainLibsvm(absl::Span<const double> keys, const LibsvmSettings& settings) {
  std::vector<svm_node> nodes;
  std::vector<svm_node*> rows;
  const size_t n = keys.size() / settings.dim;
  nodes.reserve(n * (settings.dim + 1));
  for (size_t i = 0; i < n; ++i) {
    rows.push_back(nodes.data() + nodes.size());
    for (size_t c = 0; c < settings.dim; ++c) {
      nodes.push_back({static_cast<int>(c) + 1, keys[i * settings.dim + c]});
    }
    nodes.push_back({-1, 0.0});
  }
  std::vector<double> labels(n, 1.0);
  const svm_problem problem = {static_cast<int>(n), labels.data(), rows.data()};
  svm_parameter parameter = {};
  parameter.shrinking = 1;  // svm-train's default
  parameter.svm_type = ONE_CLASS;
  parameter.kernel_type = RBF;
  parameter.gamma = 1.0 / (settings.sigma * settings.sigma);
  parameter.nu = settings.nu;
  parameter.eps = settings.eps;
  parameter.cache_size = settings.cache_mb;
  svm_set_print_string_function([](const char* /*text*/) {});
  svm_model* model = svm_train(&problem, &parameter);
  svm_free_and_destroy_model(&model);
}
#else
bool HasLibsvm() { return false; }
int LibsvmVersion() { return 0; }
void TrainLibsvm(absl::Span<const double> /*keys*/, const LibsvmSettings& /*settings*/) {
  LETHE_CHECK(HasLibsvm());
}
#endif

}  // namespace lethe::svdd
