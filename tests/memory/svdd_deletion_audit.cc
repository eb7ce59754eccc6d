#include "tests/memory/svdd_deletion_audit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

#include "audit/state/input_tree.h"
#include "audit/state/state_digest.h"
#include "boost/multiprecision/cpp_bin_float.hpp"
#include "kernels/base/byte_io.h"
#include "kernels/gram/gram.h"
#include "memory/svdd/active_set_ref.h"
#include "memory/svdd/canon.h"
#include "memory/svdd/canonical.h"
#include "memory/svdd/incremental.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

namespace mp = boost::multiprecision;
using Wide = mp::number<mp::cpp_bin_float<113, mp::digit_base_2>, mp::et_off>;

size_t At(int64_t i) { return static_cast<size_t>(i); }

absl::Span<const double> Keys(const std::vector<double>& keys, int64_t dim, int64_t begin,
                              int64_t end) {
  return absl::MakeConstSpan(keys).subspan(At(begin * dim), At((end - begin) * dim));
}

audit::Sha256Digest DigestOf(const Params& params, const std::vector<double>& keys,
                             const Solution& solution) {
  audit::InputTree tree;
  for (int64_t i = 0; i < solution.num_keys; ++i) {
    ByteWriter key;
    for (const double x : Keys(keys, params.key_dim, i, i + 1)) key.F64(x);
    tree.Append(audit::InputTree::LeafHash(key.bytes(), {}));
  }
  audit::SupportState support{
      params.sigma, params.box_mass, params.ridge, At(solution.num_keys), solution.rho,
      {},           tree.Root()};
  for (size_t i = 0; i < solution.classes.size(); ++i) {
    if (solution.classes[i] == Partition::kReserve) continue;
    support.rows.push_back(
        {i, static_cast<audit::SupportClass>(solution.classes[i]), solution.a[i]});
  }
  audit::StateParts parts;
  parts.Add(audit::SupportPartName(0, 0, 0), audit::SupportStateBytes(support));
  return parts.Digest();
}

// Solvers keep -0 as +0.
std::vector<double> WithoutMinusZeros(std::vector<double> keys) {
  for (double& x : keys) x += 0.0;
  return keys;
}

// The list on the three paths.
class Paths {
 public:
  Paths(const DeletionCase& start, std::mt19937_64* random)
      : params_(start.params),
        random_(random),
        keys_(WithoutMinusZeros(start.keys)),
        single_(params_),
        edited_(std::make_unique<CanonicalSolver>(params_)),
        folded_(params_) {}

  // Keys one by one or all at once.
  void Load(bool one_by_one) {
    const int64_t dim = params_.key_dim;
    const int64_t batch = one_by_one ? 1 : num_keys();
    for (int64_t i = 0; i < num_keys(); i += batch) {
      ASSERT_OK(single_.AddSeveral(Keys(keys_, dim, i, i + batch)));
    }
    for (CanonicalSolver* solver : {edited_.get(), &folded_}) {
      ASSERT_OK(solver->Append(keys_));
      ASSERT_OK(solver->Solve());
    }
  }

  void Remove(int64_t rank) {
    ASSERT_OK(single_.Remove(rank));
    KeyEdit edit;
    for (int64_t i = 0; i < num_keys(); ++i) {
      if (i == rank) continue;
      edit.kept.push_back(i);
      edit.heir_of.push_back(i);
    }
    Edit(edit);
    keys_ = WithoutKeys(keys_, params_.key_dim, {rank});
    const auto cut = static_cast<int64_t>((*random_)() % static_cast<uint64_t>(rank + 1));
    ASSERT_OK_AND_ASSIGN(const Solution at_cut,
                         SolveCanonical(params_, Keys(keys_, params_.key_dim, 0, cut)));
    folded_.Truncate(cut, at_cut);
    ASSERT_OK(folded_.Append(Keys(keys_, params_.key_dim, cut, num_keys())));
    ASSERT_OK(folded_.Solve());
  }

  void Add(const std::vector<double>& key) {
    ASSERT_OK(single_.Add(key));
    KeyEdit edit;
    for (int64_t i = 0; i <= num_keys(); ++i) {
      edit.kept.push_back(i < num_keys() ? i : KeyEdit::kNone);
      edit.heir_of.push_back(edit.kept.back());
    }
    edit.keys.assign(key.begin(), key.end());
    Edit(edit);
    for (const double x : key) keys_.push_back(x + 0.0);
    ASSERT_OK(folded_.Append(key));
    ASSERT_OK(folded_.Solve());
  }

  void ExpectRetrained() {
    ASSERT_OK_AND_ASSIGN(fresh_, SolveCanonical(params_, keys_));
    const audit::Sha256Digest digest = DigestOf(params_, keys_, fresh_);
    const auto expect = [&](const char* path, const std::vector<double>& keys,
                            const Solution& solution) {
      ASSERT_TRUE(SameBits(fresh_, solution)) << path << ", n " << num_keys();
      ASSERT_EQ(digest, DigestOf(params_, keys, solution)) << path << ", n " << num_keys();
    };
    expect("IncrementalSolver", single_.keys(), single_.solution());
    expect("SetEdited", edited_->keys(), edited_->solution());
    expect("Truncate", folded_.keys(), folded_.solution());
  }

  int64_t num_keys() const { return static_cast<int64_t>(keys_.size()) / params_.key_dim; }
  const std::vector<double>& keys() const { return keys_; }
  const Solution& fresh() const { return fresh_; }

  // Half of the time one of the margin or error set, if there is any.
  int64_t DrawRank() {
    const auto draw = [&] {
      return static_cast<int64_t>((*random_)() % static_cast<uint64_t>(num_keys()));
    };
    const bool of_support = (*random_)() % 2 == 0;
    int64_t rank = draw();
    const std::vector<Partition>& classes = single_.solution().classes;
    while (of_support && classes[At(rank)] == Partition::kReserve) rank = draw();
    return rank;
  }

  int64_t NumDistinctMargin() const {
    const KeyGroups& groups = edited_->key_groups();
    int64_t count = 0;
    for (int64_t group = 0; group < groups.num_groups(); ++group) {
      count += fresh_.classes[At(groups.FirstRank(group))] == Partition::kMargin ? 1 : 0;
    }
    return count;
  }

  void CountInto(DeletionTally* tally) {
    for (const Counters& counters :
         {single_.counters(), edited_counters_, edited_->counters(), folded_.counters()}) {
      tally->fallbacks += counters.fallbacks;
      tally->solves += counters.solves;
      EXPECT_EQ(counters.uncertified_gaps, 0);
    }
  }

 private:
  void Edit(const KeyEdit& edit) {
    auto next = std::make_unique<CanonicalSolver>(params_);
    ASSERT_OK(next->SetEdited(*edited_, edit));
    edited_counters_.fallbacks += edited_->counters().fallbacks;
    edited_counters_.solves += edited_->counters().solves;
    edited_ = std::move(next);
  }

  Params params_;
  std::mt19937_64* random_;
  std::vector<double> keys_;
  IncrementalSolver single_;
  std::unique_ptr<CanonicalSolver> edited_;
  Counters edited_counters_;  // of those before
  CanonicalSolver folded_;
  Solution fresh_;
};

struct Oracle {
  std::vector<Partition> classes;
  double smallest_margin = 0.0;  // a-units
};

// All copies written out; the Gram doubles as exact numbers.
Oracle SolveOracle(const Params& params, const std::vector<double>& keys) {
  const auto dim = At(params.key_dim);
  const size_t n = keys.size() / dim;
  ActiveSetRef<Wide>::Matrix twice_gram(n);
  std::vector<double> row(n);
  for (size_t i = 0; i < n; ++i) {
    GramRow(absl::MakeConstSpan(keys).subspan(i * dim, dim), keys, params.sigma,
            absl::MakeSpan(row));
    for (const double x : row) twice_gram[i].push_back(2 * Wide(x));
    twice_gram[i][i] += 2 * Wide(params.ridge);
  }
  const Wide mass = Mass(params, static_cast<int64_t>(n));
  ActiveSetRef<Wide> solver(std::move(twice_gram), mass, Wide(1e-25));
  EXPECT_TRUE(solver.Run());
  const Wide lambda =
      solver.GradientOfRank(At(static_cast<int64_t>(std::ceil(static_cast<double>(mass)))));
  Oracle oracle;
  oracle.smallest_margin = 1.0;
  for (size_t i = 0; i < n; ++i) {
    const Wide& a = solver.a()[i];
    const bool inside = a > Wide(1e-17) && a < 1 - Wide(1e-17);
    oracle.classes.push_back(inside          ? Partition::kMargin
                             : a < Wide(0.5) ? Partition::kReserve
                                             : Partition::kError);
    const Wide margin = inside ? (a < Wide(0.5) ? a : 1 - a) : abs(solver.Gradient(i) - lambda);
    oracle.smallest_margin = std::min(oracle.smallest_margin, static_cast<double>(margin));
  }
  // An empty margin set: lambda is the largest gradient of E, whose own excess is no margin.
  if (std::count(oracle.classes.begin(), oracle.classes.end(), Partition::kMargin) == 0) {
    Wide least = 2 * mass + 2;
    for (size_t i = 0; i < n; ++i) {
      if (oracle.classes[i] == Partition::kReserve) least = std::min(least, solver.Gradient(i));
    }
    oracle.smallest_margin = static_cast<double>((least - lambda) / 2);
  }
  return oracle;
}

void CompareWithOracle(const Params& params, const std::vector<double>& keys,
                       const Solution& solution, DeletionTally* tally) {
  if (solution.num_keys == 0) return;
  const Oracle oracle = SolveOracle(params, keys);
  const double threshold = MarginThreshold(params, solution.num_keys);
  if (static_cast<double>(solution.num_keys) > solution.mass && oracle.smallest_margin < 1e-15) {
    ++tally->too_close;
    EXPECT_TRUE(solution.ambiguous) << "a partition was proved that 113 bits do not show";
    return;
  }
  if (solution.ambiguous) {
    // Allowed where the true margins are below what acceptance asks for.
    ASSERT_LT(oracle.smallest_margin, 2.0 * threshold);
    return;
  }
  ++tally->compared;
  ASSERT_EQ(oracle.classes, solution.classes) << "margin " << oracle.smallest_margin;
  ASSERT_LE(solution.smallest_margin == HUGE_VAL ? 0.0 : solution.smallest_margin,
            oracle.smallest_margin * (1.0 + 1e-9) + 1e-12);
  ++tally->matched;
}

int64_t Median(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One case under way.
class Audit {
 public:
  Audit(const DeletionCase& deletions, bool with_oracle, std::mt19937_64* random,
        DeletionTally* tally)
      : case_(deletions),
        with_oracle_(with_oracle),
        random_(random),
        tally_(tally),
        paths_(deletions, random) {}

  void Run() {
    paths_.Load((*random_)() % 2 == 0);
    Settle(nullptr);
    if (case_.first_rank >= 0) Remove(case_.first_rank);
    switch (case_.plan) {
      case DeletionPlan::kDelete:
        for (int64_t k = case_.first_rank >= 0 ? 1 : 0; k < case_.count; ++k) RemoveOne();
        break;
      case DeletionPlan::kAroundMass:
        AroundMass();
        break;
      case DeletionPlan::kDownToOne:
        while (Goes() && paths_.num_keys() > 1) RemoveOne();
        break;
      case DeletionPlan::kAllAndAgain:
        for (int round = 0; round < 2; ++round) {
          while (Goes() && paths_.num_keys() > 0) RemoveOne();
          if (round == 0) Refill();
        }
        break;
    }
    paths_.CountInto(tally_);
  }

 private:
  static bool Goes() { return !::testing::Test::HasFatalFailure(); }

  void AroundMass() {
    for (int64_t left = case_.count; Goes() && left > 0;) {
      const double above = static_cast<double>(paths_.num_keys()) - case_.params.box_mass;
      const bool removes = above > 3.0 || (above > -3.0 && (*random_)() % 2 == 0);
      if (removes) {
        RemoveOne();
        --left;
      } else {
        AddOne((*random_)());
      }
    }
  }

  void Refill() {
    const auto n = static_cast<int64_t>(case_.keys.size()) / case_.params.key_dim;
    for (int64_t i = n; Goes() && i-- > 0;) AddOne(At(i));
  }

  void AddOne(uint64_t pick) {
    const auto dim = At(case_.params.key_dim);
    const size_t i = pick % (case_.keys.size() / dim);
    const auto from = case_.keys.begin() + static_cast<std::ptrdiff_t>(i * dim);
    paths_.Add(std::vector<double>(from, from + static_cast<std::ptrdiff_t>(dim)));
    Settle(&tally_->additions);
  }

  void RemoveOne() {
    if (Goes()) Remove(paths_.DrawRank());
  }

  void Remove(int64_t rank) {
    paths_.Remove(rank);
    Settle(&tally_->deletions);
    if (!Goes()) return;
    const std::vector<Partition>& classes = paths_.fresh().classes;
    tally_->margin_keys.push_back(std::count(classes.begin(), classes.end(), Partition::kMargin));
    tally_->margin_distinct.push_back(paths_.NumDistinctMargin());
    tally_->ambiguous += paths_.fresh().ambiguous ? 1 : 0;
    if (with_oracle_) CompareWithOracle(case_.params, paths_.keys(), paths_.fresh(), tally_);
  }

  // counter: of the operation that was made, or null for the load.
  void Settle(int64_t* counter) {
    if (counter != nullptr) ++*counter;
    if (!Goes()) return;
    paths_.ExpectRetrained();
    if (counter != nullptr && Goes()) ++tally_->identical;
  }

  const DeletionCase& case_;
  bool with_oracle_;
  std::mt19937_64* random_;
  DeletionTally* tally_;
  Paths paths_;
};

}  // namespace

void DeletionTally::Print(const char* kind) const {
  std::printf(
      "%-24s deletions %5lld, additions %5lld, identical %6lld, partition %5lld of %5lld%s, slow "
      "path %5lld of %6lld solves, ambiguous %4lld, median |S| %lld",
      kind, static_cast<long long>(deletions), static_cast<long long>(additions),
      static_cast<long long>(identical), static_cast<long long>(matched),
      static_cast<long long>(compared),
      too_close > 0 ? (" (" + std::to_string(too_close) + " too close)").c_str() : "",
      static_cast<long long>(fallbacks), static_cast<long long>(solves),
      static_cast<long long>(ambiguous), static_cast<long long>(Median(margin_keys)));
  if (margin_keys != margin_distinct) {
    std::printf(", %lld distinct", static_cast<long long>(Median(margin_distinct)));
  }
  std::printf("\n");
}

void AuditDeletions(const DeletionCase& deletions, bool with_oracle, std::mt19937_64* random,
                    DeletionTally* tally) {
  Audit(deletions, with_oracle, random, tally).Run();
}

bool WantsAll() {
  const char* value = std::getenv("LETHE_TEST_LONG");
  return value != nullptr && std::string(value) == "1";
}

}  // namespace lethe::svdd
