// svdd_bench: time of one boundary solve (64 new keys, canonical solution) of one support-vector
// head, and of one SvMemory::Edited of one.
//
//   svdd_bench [max_keys]         boundaries
//   svdd_bench edit [max_keys]    edits
//   svdd_bench slow [keys]        the slow canonical path from nothing, of 1,024 keys by default
//
// Keys: unit vectors of 64 components (f32, widened) whose direction has `dims` degrees of freedom,
// drifting between clusters; "random" keys use all 64, the worst case, where nearly every key is in
// the margin set. Prints, per shape, CPU milliseconds: the median and the 10th and 90th percentile
// over the last boundaries or over edits with other new keys, and set sizes. Edits: a token goes and
// the 534 after it get new keys, drawn like the others, at the start, in the middle and at the end
// of the list; and 500 tokens go that are spread over it. Slow path: Canon without a proposal, at an M of
// no special kind and at one bisected to a change of the partition, where it is taken.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "memory/svdd/canon.h"
#include "memory/svdd/canonical.h"
#include "memory/svdd/sv_memory.h"

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

struct KeySource {
  const char* name;
  int64_t dims;
  int64_t num_clusters;
  double spread;
};

std::unique_ptr<SvMemory> MemoryOf(const std::vector<float>& keys, double box_mass) {
  SvOptions options;
  options.box_mass = box_mass;
  options.beta = {1.0f};
  std::unique_ptr<SvMemory> memory = SvMemory::Create(options).value();
  std::vector<float> out(keys.size());
  MemoryInputs inputs;
  inputs.q = inputs.k = inputs.v = keys;
  const auto count = static_cast<int64_t>(keys.size()) / kDim;
  if (!memory->Step(inputs, count, absl::MakeSpan(out)).ok()) std::exit(1);
  return memory;
}

// new_keys: enough for all edits; each takes other ones.
void TimeEdits(const SvMemory& memory, const KeySource& source, const char* where,
               const std::vector<int64_t>& removed, const std::vector<int64_t>& replaced,
               const std::vector<float>& new_keys) {
  constexpr size_t kEdits = 7;
  const size_t size = replaced.size() * static_cast<size_t>(kDim);
  std::vector<double> milliseconds;
  Counters counters;
  int64_t margin = 0;
  int64_t error = 0;
  for (size_t i = 0; i < kEdits; ++i) {
    const auto keys = absl::MakeConstSpan(new_keys).subspan(i * size, size);
    const double begin = CpuMilliseconds();
    const absl::StatusOr<std::unique_ptr<SvMemory>> edited =
        memory.Edited({removed, replaced, keys, keys});
    milliseconds.push_back(CpuMilliseconds() - begin);
    if (!edited.ok()) std::exit(1);
    counters = (*edited)->counters();
    const std::vector<Partition>& classes = (*edited)->head(0).solution->classes;
    margin = std::count(classes.begin(), classes.end(), Partition::kMargin);
    error = std::count(classes.begin(), classes.end(), Partition::kError);
  }
  std::printf(
      "%-10s n %5lld  %-9s %8.2f ms (%.2f..%.2f)  S %lld E %lld  accepted %lld fallbacks %lld "
      "pivot failures %lld  kernel values %lld\n",
      source.name, static_cast<long long>(memory.num_tokens()), where,
      Percentile(milliseconds, 0.5), Percentile(milliseconds, 0.1), Percentile(milliseconds, 0.9),
      static_cast<long long>(margin), static_cast<long long>(error),
      static_cast<long long>(counters.accepted), static_cast<long long>(counters.fallbacks),
      static_cast<long long>(counters.pivot_failures),
      static_cast<long long>(counters.kernel_values));
  std::fflush(stdout);
}

void RunEdits(const KeySource& source, int64_t num_keys, double box_mass) {
  constexpr int64_t kReplaced = 534;
  const int64_t num_new = 7 * kReplaced;
  const std::vector<double> wide =
      MakeKeys(num_keys + num_new, source.dims, source.num_clusters, source.spread, 7);
  const std::vector<float> all(wide.begin(), wide.end());
  const auto split = all.begin() + num_keys * kDim;
  const std::vector<float> new_keys(split, all.end());
  const std::unique_ptr<SvMemory> memory =
      MemoryOf(std::vector<float>(all.begin(), split), box_mass);
  for (const auto& [where, first] :
       {std::pair("start", int64_t{10}), std::pair("middle", (num_keys - kReplaced) / 2),
        std::pair("end", num_keys - kReplaced - 10)}) {
    std::vector<int64_t> replaced;
    for (int64_t i = 0; i < kReplaced; ++i) replaced.push_back(first + 1 + i);
    TimeEdits(*memory, source, where, {first}, replaced, new_keys);
  }
  std::vector<int64_t> removed;
  for (int64_t i = 0; i < 500; ++i) removed.push_back(i * num_keys / 500);
  TimeEdits(*memory, source, "scattered", removed, {}, {});
}

void RunAllEdits(int64_t max_keys) {
  for (const int64_t n : {1024, 8192, 32768}) {
    if (n > max_keys) continue;
    RunEdits({"random", 64, 1, 1.0}, n, 256.0);
    RunEdits({"clusters", 12, 40, 0.4}, n, 256.0);
    RunEdits({"smooth 12", 12, 1, 1.0}, n, 256.0);
    // Half an hour of boundaries beyond.
    if (n <= 8192) RunEdits({"smooth 6", 6, 1, 1.0}, n, 256.0);
  }
}

// The last double below a change of the partition between the two.
double BisectedMass(const std::vector<double>& keys, double ridge, double low, double high) {
  const auto classes = [&](double box_mass) {
    return SolveCanonical(MakeParams(1.0, box_mass, ridge, kDim).value(), keys)->classes;
  };
  const std::vector<Partition> at_low = classes(low);
  for (double middle = 0.5 * (low + high); middle != low && middle != high;
       middle = 0.5 * (low + high)) {
    (classes(middle) == at_low ? low : high) = middle;
  }
  return low;
}

void TimeSlowPath(const KeySource& source, int64_t num_keys, double box_mass, double ridge,
                  const char* where) {
  const std::vector<double> keys =
      MakeKeys(num_keys, source.dims, source.num_clusters, source.spread, 7);
  if (std::string(where) == "change") box_mass = BisectedMass(keys, ridge, box_mass, box_mass + 1);
  const Params params = MakeParams(1.0, box_mass, ridge, kDim).value();
  std::vector<double> milliseconds;
  Counters counters;
  int64_t margin = 0;
  for (int run = 0; run < 7; ++run) {
    GramCache gram(params.sigma, kDim);
    gram.Append(keys);
    CholeskyFactor factor(ridge);
    const double begin = CpuMilliseconds();
    const Solution solution = Canon(&gram, params, nullptr, &factor, &counters);
    milliseconds.push_back(CpuMilliseconds() - begin);
    margin = std::count(solution.classes.begin(), solution.classes.end(), Partition::kMargin);
  }
  std::printf(
      "%-10s n %5lld M %8.4f ridge %.0e  %8.2f ms (%.2f..%.2f)  S %lld  ambiguous %lld of 7\n",
      source.name, static_cast<long long>(num_keys), box_mass, ridge, Percentile(milliseconds, 0.5),
      Percentile(milliseconds, 0.0), Percentile(milliseconds, 1.0), static_cast<long long>(margin),
      static_cast<long long>(counters.ambiguous));
  std::fflush(stdout);
}

void TimeSlowPaths(int64_t num_keys) {
  constexpr KeySource kSources[] = {{"random", 64, 1, 1.0},
                                    {"clusters", 12, 40, 0.4},
                                    {"smooth 12", 12, 1, 1.0},
                                    {"smooth 6", 6, 1, 1.0}};
  for (const KeySource& source : kSources) {
    for (const double ridge : {0x1.0p-11, 1e-8}) {
      for (const double share : {0.1, 0.25}) {
        for (const char* where : {"any", "change"}) {
          TimeSlowPath(source, num_keys, share * static_cast<double>(num_keys), ridge, where);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lethe::svdd

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "edit") {
    lethe::svdd::RunAllEdits(argc > 2 ? std::atoll(argv[2]) : 32768);
    return 0;
  }
  if (argc > 1 && std::string(argv[1]) == "slow") {
    lethe::svdd::TimeSlowPaths(argc > 2 ? std::atoll(argv[2]) : 1024);
    return 0;
  }
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
