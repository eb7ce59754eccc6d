// The support-vector problem in 256-bit arithmetic: the true optimum, and how far a reported solution is
// from it.
//
// Method: boost's cpp_bin_float, the exact kernel of the stored key bits, ActiveSetRef for the optimum:
// neither the proof's arithmetic nor its exponential.
// Threads: none.
#ifndef LETHE_TESTS_MEMORY_SVDD_EXACT_H_
#define LETHE_TESTS_MEMORY_SVDD_EXACT_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/types/span.h"

#include "boost/multiprecision/cpp_bin_float.hpp"
#include "memory/svdd/double_double.h"
#include "memory/svdd/problem.h"
#include "memory/svdd/proof.h"
#include "memory/svdd/readout_bound.h"

namespace lethe::svdd {

using Wide = boost::multiprecision::number<
    boost::multiprecision::cpp_bin_float<256, boost::multiprecision::digit_base_2>,
    boost::multiprecision::et_off>;

Wide ToWide(const DoubleDouble& x);
Wide ExactKernel(absl::Span<const double> x, absl::Span<const double> y, double sigma);

// One query: the weights of the retained keys and the sum over the local inputs, without gates.
struct ExactQuery {
  std::vector<Wide> kernel;  // kappa(q, x_i)
  std::vector<Wide> hybrid;  // e^{q.k_i/sqrt(dim)}
  std::vector<Wide> local;   // of the local inputs
};

struct ExactCase {
  Params params;
  std::vector<double> keys;
  std::vector<double> values;        // [n][kValueDim]
  std::vector<double> local_values;  // [kLocal][kValueDim]
  std::vector<ExactQuery> queries;

  static constexpr int64_t kValueDim = 2;
  static constexpr size_t kLocal = 2;

  Wide mass;
  std::vector<Wide> a;  // the optimum, in a-units
  Wide rho;
  std::vector<Partition> classes;  // of the optimum
  bool solved = false;

  size_t n() const { return keys.size() / static_cast<size_t>(params.key_dim); }
  absl::Span<const double> Key(size_t i) const {
    const auto dim = static_cast<size_t>(params.key_dim);
    return absl::MakeConstSpan(keys).subspan(i * dim, dim);
  }
  ReadoutValues<double> Values(bool hybrid) const {
    return {values, hybrid ? absl::MakeConstSpan(local_values) : absl::Span<const double>(),
            kValueDim};
  }
};

// Queries at keys, near them and far from all.
ExactCase MakeExactCase(const Params& params, std::vector<double> keys, size_t num_queries,
                        std::mt19937_64* random);

// True deviations of a reported solution, each the largest over the queries.
struct Deviations {
  Wide alpha = 0;
  Wide kernel_sum = 0;
  Wide rho = 0;
  Wide decision = 0;
  Wide readout_rbf = 0;
  Wide readout_hybrid = 0;
  // Per query, the largest over the coordinates.
  std::vector<Wide> rbf;
  std::vector<Wide> hybrid;
};
Deviations DeviationsOf(const ExactCase& c, absl::Span<const double> a, double rho);

}  // namespace lethe::svdd

#endif  // LETHE_TESTS_MEMORY_SVDD_EXACT_H_
