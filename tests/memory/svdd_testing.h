// Problems for the support-vector tests: kinds of key sets, and checks against the plain reference.
// Threads: none.
#ifndef LETHE_TESTS_MEMORY_SVDD_TESTING_H_
#define LETHE_TESTS_MEMORY_SVDD_TESTING_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "memory/svdd/problem.h"

namespace lethe::svdd {

enum class KeyKind {
  kGaussian,
  kUnitSphere,
  kClusters,
  kDuplicates,       // exact copies
  kNearDuplicates6,  // copies moved by 1e-6 … 1e-12
  kNearDuplicates8,
  kNearDuplicates10,
  kNearDuplicates12,
  kCollinear,
  kGrid,           // three levels a component: many equal distances
  kPlusMinusUnit,  // +- unit vectors
  kSeparated,      // tight pairs far from each other: empty margins
  kFewKeys,        // mostly copies of very few keys, zeros of both signs among their components
};

inline constexpr KeyKind kAllKinds[] = {KeyKind::kGaussian,         KeyKind::kUnitSphere,
                                        KeyKind::kClusters,         KeyKind::kDuplicates,
                                        KeyKind::kNearDuplicates6,  KeyKind::kNearDuplicates8,
                                        KeyKind::kNearDuplicates10, KeyKind::kNearDuplicates12,
                                        KeyKind::kCollinear,        KeyKind::kGrid,
                                        KeyKind::kPlusMinusUnit,    KeyKind::kSeparated,
                                        KeyKind::kFewKeys};

const char* KindName(KeyKind kind);
std::vector<double> MakeKeys(KeyKind kind, int64_t num_keys, int64_t dim, std::mt19937_64* random);

Params MakeParamsOrDie(double sigma, double box_mass, double ridge, int64_t key_dim);

// The largest violation of the KKT conditions by a solution, in a-units, in long double on the Gram
// doubles.
double KktViolation(const Params& params, absl::Span<const double> keys, const Solution& solution);

// The keys without those at the given ascending ranks.
std::vector<double> WithoutKeys(absl::Span<const double> keys, int64_t dim,
                                const std::vector<int64_t>& ranks);

// `count` ascending distinct ranks below n.
std::vector<int64_t> RandomRanks(int64_t count, int64_t n, std::mt19937_64* random);

}  // namespace lethe::svdd

#endif  // LETHE_TESTS_MEMORY_SVDD_TESTING_H_
