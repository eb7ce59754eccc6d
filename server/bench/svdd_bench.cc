// lethe bench svdd: the exact one-class solver by itself, beside libsvm where the build found it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "audit/state/input_tree.h"
#include "audit/state/state_digest.h"
#include "kernels/base/status_macros.h"
#include "memory/svdd/canonical.h"
#include "memory/svdd/incremental.h"
#include "memory/svdd/libsvm_peer.h"
#include "server/bench/benches.h"
#include "server/bench/report.h"
#include "server/model/support_state.h"

namespace lethe::bench {
namespace {

using svdd::IncrementalSolver;
using svdd::Params;
using svdd::Partition;

constexpr int64_t kDim = 32;
constexpr double kNu = 0.1;
constexpr double kTolerance = 1e-9;  // libsvm's; ours ends in the optimum itself

class Keys {
 public:
  explicit Keys(uint64_t seed) : random_(seed) {}

  std::vector<double> Draw(int64_t count) {
    std::normal_distribution<double> normal;
    std::vector<double> keys(static_cast<size_t>(count * kDim));
    for (double& x : keys) x = normal(random_);
    return keys;
  }
  int64_t Below(int64_t end) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(end));
  }

 private:
  std::mt19937_64 random_;
};

// The median squared distance of such keys is 2 kDim to a few percent.
double Sigma() { return std::sqrt(2.0 * kDim); }

// Seconds of one training by libsvm; less than 0 where there is none.
double LibsvmSeconds(const std::vector<double>& keys) {
  if (!svdd::HasLibsvm()) return -1.0;
  const double start = Now();
  svdd::TrainLibsvm(keys, {kDim, Sigma(), kNu, kTolerance, 4096.0});
  return Now() - start;
}

// What the state digest of a session of vectors covers: the tree over its keys (here without values) and
// the support list.
class DigestedState {
 public:
  DigestedState(const Params& params, const std::vector<double>& keys) : params_(params) {
    for (size_t i = 0; i < keys.size(); i += kDim)
      Append(absl::MakeConstSpan(keys).subspan(i, kDim));
  }

  void Append(absl::Span<const double> key) {
    tree_.Append(audit::InputTree::LeafHash(
        {reinterpret_cast<const char*>(key.data()), key.size() * sizeof(double)}, {}));
  }
  void Erase(int64_t rank) { tree_.Erase(static_cast<uint64_t>(rank)); }

  audit::Sha256Digest Digest(const svdd::Solution& solution) const {
    const audit::SupportState support = SupportStateOf(params_, solution, tree_.Root());
    audit::StateParts parts;
    parts.Add(audit::SupportPartName(0, 0, 0), audit::SupportStateBytes(support));
    return parts.Digest();
  }

 private:
  Params params_;
  audit::InputTree tree_;
};

struct Row {
  int64_t num_keys;
  std::string what;
  Samples milliseconds;
  double peer_ms;       // libsvm's refit, or less than 0
  Samples with_digest;  // milliseconds and the state digest's; maybe none
};

void Print(const Row& row, bool json) {
  if (json) {
    std::printf(
        "{\"bench\":\"svdd\",\"n\":%lld,\"what\":\"%s\",\"median_ms\":%.5f,\"min_ms\":%.5f,"
        "\"max_ms\":%.5f,\"runs\":%zu,\"with_digest_ms\":%.5f,\"libsvm_ms\":%.3f}\n",
        static_cast<long long>(row.num_keys), row.what.c_str(), row.milliseconds.Median(),
        row.milliseconds.Min(), row.milliseconds.Max(), row.milliseconds.values.size(),
        row.with_digest.values.empty() ? -1.0 : row.with_digest.Median(), row.peer_ms);
    return;
  }
  std::printf("%7lld  %-22s %11.4f %11.4f %11.4f", static_cast<long long>(row.num_keys),
              row.what.c_str(), row.milliseconds.Median(), row.milliseconds.Min(),
              row.milliseconds.Max());
  double ours = row.milliseconds.Median();
  if (row.with_digest.values.empty()) {
    std::printf(" %11s", "");
  } else {
    ours = row.with_digest.Median();
    std::printf(" %11.4f", ours);
  }
  if (row.peer_ms >= 0.0) std::printf(" %11.1f %9.1f", row.peer_ms, row.peer_ms / ours);
  std::printf("\n");
}

double Milliseconds(double start) { return 1e3 * (Now() - start); }

// A rank drawn among the classes wanted.
int64_t DrawRank(const std::vector<Partition>& classes, bool of_support, Keys* keys) {
  while (true) {
    const int64_t rank = keys->Below(static_cast<int64_t>(classes.size()));
    if ((classes[static_cast<size_t>(rank)] != Partition::kReserve) == of_support) return rank;
  }
}

// The same keys but one.
svdd::KeyEdit Without(int64_t gone, int64_t num_keys) {
  svdd::KeyEdit edit;
  for (int64_t rank = 0; rank < num_keys; ++rank) {
    if (rank == gone) continue;
    edit.kept.push_back(rank);
    edit.heir_of.push_back(rank);
  }
  return edit;
}

// A re-solve from the solution before, on its Gram rows as far as they are kept: what a library without
// decrements would do.
absl::Status WarmResolve(const Params& params, const std::vector<double>& all, int runs, Keys* keys,
                         Samples* milliseconds) {
  svdd::CanonicalSolver loaded(params);
  LETHE_RETURN_IF_ERROR(loaded.Append(all));
  LETHE_RETURN_IF_ERROR(loaded.Solve());
  // A first load keeps no rows; what follows it does.
  svdd::CanonicalSolver solver(params);
  LETHE_RETURN_IF_ERROR(solver.SetEdited(loaded, Without(0, loaded.num_keys())));
  for (int run = 0; run < runs; ++run) {
    const int64_t gone = DrawRank(solver.solution().classes, true, keys);
    const svdd::KeyEdit edit = Without(gone, solver.num_keys());
    const double start = Now();
    svdd::CanonicalSolver edited(params);
    LETHE_RETURN_IF_ERROR(edited.SetEdited(solver, edit));
    milliseconds->values.push_back(Milliseconds(start));
  }
  return absl::OkStatus();
}

struct Operations {
  Samples forget_support;
  Samples forget_support_digest;  // the state digest included
  Samples forget_reserve;
  Samples forget_reserve_digest;
  Samples append_inside;
  Samples append_outside;  // the key becomes part of S or E
};

absl::Status TimeOperations(int runs, Keys* keys, IncrementalSolver* solver, DigestedState* state,
                            Operations* out) {
  for (int run = 0; run < runs; ++run) {
    for (const bool of_support : {true, false}) {
      const int64_t rank = DrawRank(solver->solution().classes, of_support, keys);
      double start = Now();
      LETHE_RETURN_IF_ERROR(solver->Remove(rank));
      const double removed = Milliseconds(start);
      state->Erase(rank);
      static_cast<void>(state->Digest(solver->solution()));
      const double digested = Milliseconds(start);
      (of_support ? out->forget_support : out->forget_reserve).values.push_back(removed);
      (of_support ? out->forget_support_digest : out->forget_reserve_digest)
          .values.push_back(digested);
      const std::vector<double> key = keys->Draw(1);
      start = Now();
      LETHE_RETURN_IF_ERROR(solver->Add(key));
      const double took = Milliseconds(start);
      const bool inside = solver->solution().classes.back() == Partition::kReserve;
      (inside ? out->append_inside : out->append_outside).values.push_back(took);
      state->Append(key);
    }
  }
  return absl::OkStatus();
}

absl::Status RunSize(int64_t n, const BenchOptions& options) {
  Keys keys(static_cast<uint64_t>(n));
  const std::vector<double> all = keys.Draw(n);
  LETHE_ASSIGN_OR_RETURN(const Params params,
                         svdd::MakeParams(Sigma(), kNu * static_cast<double>(n), 0x1.0p-11, kDim));
  const double peer_ms = 1e3 * LibsvmSeconds(all);
  const auto print = [&](const char* what, const Samples& samples, double peer,
                         const Samples& with_digest = {}) {
    if (!samples.values.empty()) Print({n, what, samples, peer, with_digest}, options.json);
  };
  Samples load;
  std::unique_ptr<IncrementalSolver> solver;
  for (int run = 0; run < 3; ++run) {
    solver = std::make_unique<IncrementalSolver>(params);
    const double start = Now();
    LETHE_RETURN_IF_ERROR(solver->AddSeveral(all));
    load.values.push_back(Milliseconds(start));
  }
  print("bulk load", load, peer_ms);
  Operations operations;
  DigestedState state(params, all);
  LETHE_RETURN_IF_ERROR(TimeOperations(options.runs, &keys, solver.get(), &state, &operations));
  print("forget, support", operations.forget_support, peer_ms, operations.forget_support_digest);
  print("forget, reserve", operations.forget_reserve, peer_ms, operations.forget_reserve_digest);
  print("append, falls inside", operations.append_inside, -1.0);
  print("append, into S or E", operations.append_outside, -1.0);
  Samples resolve;
  LETHE_RETURN_IF_ERROR(WarmResolve(params, all, 5, &keys, &resolve));
  print("warm re-solve", resolve, -1.0);
  LETHE_ASSIGN_OR_RETURN(const svdd::Solution fresh, svdd::SolveCanonical(params, solver->keys()));
  if (!svdd::SameBits(fresh, solver->solution()) ||
      state.Digest(fresh) != DigestedState(params, solver->keys()).Digest(fresh)) {
    return absl::InternalError("the maintained solution differs from a solve from scratch");
  }
  const std::vector<Partition>& classes = solver->solution().classes;
  const auto count = [&](Partition place) {
    return static_cast<long long>(std::count(classes.begin(), classes.end(), place));
  };
  std::printf(options.json ? "{\"bench\":\"svdd_state\",\"n\":%lld,\"margin\":%lld,\"error\":%lld,"
                             "\"bytes_per_key\":%.0f,\"slow_path\":%lld}\n"
                           : "%7lld  %lld margin and %lld error keys, %.0f bytes a key, slow path "
                             "taken %lld times; bits equal a solve from scratch\n",
              static_cast<long long>(n), count(Partition::kMargin), count(Partition::kError),
              static_cast<double>(solver->state_bytes()) / static_cast<double>(n),
              static_cast<long long>(solver->counters().fallbacks));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunSvddBench(const BenchOptions& options) {
  if (!options.json) {
    std::printf("machine: %s, one thread\n", MachineName().c_str());
    std::printf(
        "normal keys, d = %lld, nu = %.1f, sigma^2 = 2d, ridge 2^-11; %d operations of each "
        "kind, canonical form included\n",
        static_cast<long long>(kDim), kNu, options.runs);
    if (svdd::HasLibsvm()) {
      std::printf("libsvm %d: one-class RBF, eps %.0e, one training\n\n", svdd::LibsvmVersion(),
                  kTolerance);
    } else {
      std::printf("libsvm was not found when this was built\n\n");
    }
    std::printf("%7s  %-22s %11s %11s %11s %11s %11s %9s\n", "keys", "what", "median ms", "least",
                "greatest", "and digest", "libsvm ms", "ratio");
  }
  for (const int64_t n : options.sizes) {
    LETHE_RETURN_IF_ERROR(RunSize(n, options));
    std::fflush(stdout);  // the larger ones take minutes
  }
  return absl::OkStatus();
}

}  // namespace lethe::bench
