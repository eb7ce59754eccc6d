#include <vector>

#include "absl/types/span.h"

#include "kernels/base/wiped.h"
#include "kernels/gram/gram.h"
#include "memory/svdd/svdd_batch_device.h"
#include "memory/svdd/svdd_block_edit.h"

namespace lethe::svdd {
namespace {

// GramRow's bits.
class HostGram {
 public:
  void Fill(const BlockProblem& problem, int32_t n) {
    for (int32_t i = 0; i < n; ++i) Evaluate(problem, i, n);
  }
  void Row(const BlockProblem& problem, int32_t row) {
    const int32_t n = problem.head->num_keys;
    Evaluate(problem, row, n);
    for (int32_t i = 0; i < n; ++i) problem.Row(i)[row] = problem.Row(row)[i];
  }

 private:
  static void Evaluate(const BlockProblem& problem, int32_t row, int32_t n) {
    const auto dim = static_cast<size_t>(problem.dim);
    const auto count = static_cast<size_t>(n);
    const absl::Span<const double> keys(problem.keys, count * dim);
    GramRow(keys.subspan(static_cast<size_t>(row) * dim, dim), keys, problem.head->sigma,
            {problem.Row(row), count});
  }
};

}  // namespace

void RunSvddHost(const SvddPool& pool, const SvddWork& work, SvddOperation operation,
                 const SvddJob* jobs, int32_t num_jobs, const SvddArguments& arguments) {
  WipedVector<double> small(kSmallFactorDoubles);
  const BlockWorkspace space =
      PlaceWorkspace(pool.max_keys, work.doubles, small.data(), work.vectors);
  HostTeam team;
  HostGram gram;
  for (int32_t index = 0; index < num_jobs; ++index) {
    RunJob(&team, &gram, pool, space, operation, jobs[index], index, arguments);
  }
}

}  // namespace lethe::svdd
