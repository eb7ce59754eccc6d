// svdd_bench: time of one boundary solve (64 new keys, canonical solution) of one support-vector
// head.
//
//   svdd_bench [max_keys]
//
// Keys: unit vectors of 64 components (f32, widened) whose direction has `dims` degrees of freedom,
// drifting between clusters; "random" keys use all 64, the worst case, where nearly every key is in
// the margin set. Prints, per shape, CPU milliseconds: the median and the 10th and 90th percentile
// over the last boundaries, and set sizes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "memory/svdd/canonical.h"

namespace lethe::svdd {
namespace {

constexpr int64_t kDim = 64;
constexpr int64_t kChunk = 64;

std::vector<double> MakeKeys(int64_t num_keys, int64_t dims, int64_t num_clusters, double spread,
                             uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  std::vector<double> basis(at(dims * kDim));
  for (double& x : basis) x = normal(random);
  std::vector<double> centres(at(num_clusters * dims));
  for (double& x : centres) x = normal(random);
  std::vector<double> keys(at(num_keys * kDim));
  for (int64_t i = 0; i < num_keys; ++i) {
    const int64_t cluster = static_cast<int64_t>(random() % static_cast<uint64_t>(num_clusters));
    std::vector<double> key(at(kDim), 0.0);
    for (int64_t j = 0; j < dims; ++j) {
      const double weight = centres[at(cluster * dims + j)] + spread * normal(random);
      for (int64_t c = 0; c < kDim; ++c) key[at(c)] += weight * basis[at(j * kDim + c)];
    }
    double norm = 0.0;
    for (const double x : key) norm += x * x;
    for (int64_t c = 0; c < kDim; ++c) {
      keys[at(i * kDim + c)] = static_cast<float>(key[at(c)] / std::sqrt(norm));
    }
  }
  return keys;
}

// Of this thread, so that other work on the machine does not count.
double CpuMilliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

void Run(const std::string& name, int64_t num_keys, double box_mass, int64_t dims,
         int64_t num_clusters, double spread) {
  const int64_t timed = 8;  // boundaries
  const std::vector<double> keys = MakeKeys(num_keys, dims, num_clusters, spread, 7);
  const absl::StatusOr<Params> params = MakeParams(1.0, box_mass, 0x1.0p-11, kDim);
  if (!params.ok()) std::exit(1);
  CanonicalSolver solver(*params);
  std::vector<double> milliseconds;
  for (int64_t n = 0; n < num_keys; n += kChunk) {
    const double begin = CpuMilliseconds();
    const bool ok = solver
                        .Append(absl::MakeConstSpan(keys).subspan(
                            static_cast<size_t>(n * kDim), static_cast<size_t>(kChunk * kDim)))
                        .ok() &&
                    solver.Solve().ok();
    const double took = CpuMilliseconds() - begin;
    if (!ok) std::exit(1);
    if (n + kChunk * timed >= num_keys) milliseconds.push_back(took);
  }
  int64_t margin = 0;
  int64_t error = 0;
  for (const Partition place : solver.solution().classes) {
    margin += place == Partition::kMargin ? 1 : 0;
    error += place == Partition::kError ? 1 : 0;
  }
  const Counters counters = solver.counters();
  std::printf(
      "%-10s n %5lld M %4.0f  %8.2f ms (%.2f..%.2f)  S %lld E %lld  solves %lld accepted %lld "
      "fallbacks %lld ambiguous %lld more digits %lld pivot failures %lld  %.1f MB\n",
      name.c_str(), static_cast<long long>(num_keys), box_mass, Percentile(milliseconds, 0.5),
      Percentile(milliseconds, 0.1), Percentile(milliseconds, 0.9), static_cast<long long>(margin),
      static_cast<long long>(error), static_cast<long long>(counters.solves),
      static_cast<long long>(counters.accepted), static_cast<long long>(counters.fallbacks),
      static_cast<long long>(counters.ambiguous), static_cast<long long>(counters.more_digits),
      static_cast<long long>(counters.pivot_failures),
      static_cast<double>(solver.state_bytes()) / 1e6);
  std::fflush(stdout);
}

}  // namespace
}  // namespace lethe::svdd

int main(int argc, char** argv) {
  const int64_t max_keys = argc > 1 ? std::atoll(argv[1]) : 8192;
  for (const int64_t n : {512, 2048, 8192}) {
    if (n > max_keys) continue;
    for (const double box_mass : {128.0, 256.0}) {
      lethe::svdd::Run("smooth 6", n, box_mass, 6, 1, 1.0);
      lethe::svdd::Run("clusters", n, box_mass, 12, 40, 0.4);
      if (n <= 2048) lethe::svdd::Run("random", n, box_mass, 64, 1, 1.0);
    }
  }
  return 0;
}
