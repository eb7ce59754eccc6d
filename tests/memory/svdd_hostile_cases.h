// HostileKinds: lists and parameters chosen to break an exact solver, as deletion cases.
// Threads: safe.
#ifndef LETHE_TESTS_MEMORY_SVDD_HOSTILE_CASES_H_
#define LETHE_TESTS_MEMORY_SVDD_HOSTILE_CASES_H_

#include <cstdint>
#include <random>
#include <vector>

#include "tests/memory/svdd_deletion_audit.h"

namespace lethe::svdd {

struct HostileKind {
  const char* name;
  int64_t num_cases;  // enough for 300 deletions
  DeletionCase (*make)(int64_t trial, std::mt19937_64* random);
};

std::vector<HostileKind> HostileKinds();

// An M in (low, high), the last double before the partition of the list changes; less than 0 if it is the
// same at both.
double BisectedMass(const Params& params, const std::vector<double>& keys, double low, double high);

// The settings of the paper's deletion audit: nu 0.4, sigma 2, two deletions.
DeletionCase PaperCase(std::vector<double> keys, int64_t dim);

// Without keys closer than `distance` to an earlier one.
std::vector<double> WithoutNear(const std::vector<double>& keys, int64_t dim, double distance);

}  // namespace lethe::svdd

#endif  // LETHE_TESTS_MEMORY_SVDD_HOSTILE_CASES_H_
