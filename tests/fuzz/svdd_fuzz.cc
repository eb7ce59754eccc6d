// Goal: no sequence of operations on the solver, with no keys, ends in another solution than that of a
// solve of the keys that remain; what is refused changes nothing.
// Method: the bytes are parameters and operations with hostile keys (copies, keys a hair apart, on a
// line, up to 2^400, not finite, of a wrong size), made on IncrementalSolver and on CanonicalSolver by
// SetEdited and by Truncate and Append; every few operations all are compared with SolveCanonical, and
// that with the KKT conditions in long double.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "memory/svdd/canonical.h"
#include "memory/svdd/incremental.h"
#include "tests/fuzz/fuzz_bytes.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/memory/svdd_testing.h"

namespace lethe::fuzz {
namespace {

using svdd::CanonicalSolver;
using svdd::IncrementalSolver;
using svdd::KeyEdit;
using svdd::Params;
using svdd::Solution;

constexpr int64_t kMaxKeys = 24;
constexpr int kMaxOperations = 40;

size_t At(int64_t i) { return static_cast<size_t>(i); }

using Bytes = FuzzBytes;

absl::StatusOr<Params> ReadParams(Bytes* bytes) {
  const uint8_t kind = bytes->Next();
  const int64_t dim = 1 + kind % 3;
  if (kind >= 0xf0) {
    const double sigma = bytes->Raw();
    const double box_mass = bytes->Raw();
    return svdd::MakeParams(sigma, box_mass, bytes->Raw(), dim);
  }
  constexpr double kSigmas[] = {1.0, 1.0, 0.5, 2.0, 0x1.0p-20, 0x1.0p20, 1e-3, 1e3};
  constexpr double kRidges[] = {0x1.0p-11, 1e-8, 0x1.0p-11, 1e-5};
  const double sigma = kSigmas[bytes->Below(8)];
  const double ridge = kRidges[bytes->Below(4)];
  const auto whole = static_cast<double>(1 + bytes->Below(14));
  const double part = static_cast<double>(bytes->Next()) / 256.0;
  return svdd::MakeParams(sigma, kind % 2 == 0 ? whole : whole + part, ridge, dim);
}

// The list on all paths.
class World {
 public:
  explicit World(const Params& params)
      : params_(params),
        single_(std::make_unique<IncrementalSolver>(params)),
        edited_(std::make_unique<CanonicalSolver>(params)),
        folded_(std::make_unique<CanonicalSolver>(params)) {}

  void Operate(Bytes* bytes);
  void Compare();

 private:
  int64_t dim() const { return params_.key_dim; }
  int64_t num_keys() const { return static_cast<int64_t>(keys_.size()) / dim(); }
  std::vector<double> ReadKey(Bytes* bytes) const;
  void Add(const std::vector<double>& keys);
  void Remove(const std::vector<int64_t>& ranks);
  void Truncate(int64_t kept);
  void RemoveBadRanks(Bytes* bytes);
  void Edit(const KeyEdit& edit);

  Params params_;
  std::vector<double> keys_;
  std::unique_ptr<IncrementalSolver> single_;
  std::unique_ptr<CanonicalSolver> edited_;
  std::unique_ptr<CanonicalSolver> folded_;
};

std::vector<double> World::ReadKey(Bytes* bytes) const {
  const uint8_t kind = bytes->Next();
  std::vector<double> key(At(dim()), 0.0);
  const int64_t from = num_keys() > 0 ? bytes->Below(num_keys()) : -1;
  const auto at = At(bytes->Below(dim()));
  switch (kind % 12) {
    case 0:  // a copy
    case 1:  // a hair apart
      if (from >= 0) std::copy_n(keys_.begin() + from * dim(), dim(), key.begin());
      if (kind % 12 == 1) key[at] += std::ldexp(1.0, -18 - static_cast<int>(bytes->Below(36)));
      break;
    case 2:  // on a line
      for (size_t c = 0; c < key.size(); ++c) {
        key[c] = 0.05 * static_cast<double>(bytes->Next()) * static_cast<double>(c + 1);
      }
      break;
    case 3:  // zeros of both signs and a unit
      for (double& x : key) x = bytes->Below(2) == 0 ? 0.0 : -0.0;
      if (bytes->Below(2) == 0) key[at] = bytes->Below(2) == 0 ? 1.0 : -1.0;
      break;
    case 4:  // far off
      for (double& x : key) {
        x = std::ldexp(bytes->Below(2) == 0 ? 1.0 : -1.0,
                       static_cast<int>(bytes->Next()) * 2 - 109);
      }
      break;
    case 5:
      for (double& x : key) x = bytes->Raw();
      break;
    case 6: {
      constexpr double kBad[] = {std::numeric_limits<double>::quiet_NaN(),
                                 std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity(), 0x1.0p401};
      key[at] = kBad[bytes->Below(4)];
      break;
    }
    case 7:
      if (bytes->Below(2) == 0) key.push_back(0.5);
      break;
    default:
      for (double& x : key) x = (static_cast<double>(bytes->Next()) - 128.0) / 64.0;
  }
  return key;
}

void World::Add(const std::vector<double>& keys) {
  const bool valid = svdd::CheckKeys(params_, keys).ok() && !keys.empty();
  const Solution before = single_->solution();
  const absl::Status added =
      static_cast<int64_t>(keys.size()) == dim() ? single_->Add(keys) : single_->AddSeveral(keys);
  LETHE_CHECK(added.ok() == (valid || keys.empty()));
  LETHE_CHECK(folded_->Append(keys).ok() == added.ok());
  if (!valid) {
    LETHE_CHECK(single_->keys() == keys_ && folded_->keys() == keys_);
    LETHE_CHECK(SameBits(before, single_->solution()));
    return;
  }
  LETHE_CHECK(folded_->Solve().ok());
  KeyEdit edit;
  const auto count = static_cast<int64_t>(keys.size()) / dim();
  for (int64_t i = 0; i < num_keys() + count; ++i) {
    edit.kept.push_back(i < num_keys() ? i : KeyEdit::kNone);
    edit.heir_of.push_back(edit.kept.back());
  }
  edit.keys.assign(keys.begin(), keys.end());
  Edit(edit);
  for (const double x : keys) keys_.push_back(x + 0.0);  // -0 is kept as +0
}

void World::Edit(const KeyEdit& edit) {
  auto next = std::make_unique<CanonicalSolver>(params_);
  LETHE_CHECK(next->SetEdited(*edited_, edit).ok());
  edited_ = std::move(next);
}

void World::Remove(const std::vector<int64_t>& ranks) {
  if (ranks.empty()) return;
  LETHE_CHECK(single_->RemoveSeveral(ranks).ok());
  KeyEdit edit;
  for (int64_t i = 0; i < num_keys(); ++i) {
    if (std::binary_search(ranks.begin(), ranks.end(), i)) continue;
    edit.kept.push_back(i);
    edit.heir_of.push_back(i);
  }
  Edit(edit);
  keys_ = svdd::WithoutKeys(keys_, dim(), ranks);
  const int64_t cut = ranks[0];
  const auto kept = absl::MakeConstSpan(keys_).first(At(cut * dim()));
  folded_->Truncate(cut, svdd::SolveCanonical(params_, kept).value());
  LETHE_CHECK(folded_->Append(absl::MakeConstSpan(keys_).subspan(kept.size())).ok());
  LETHE_CHECK(folded_->Solve().ok());
}

void World::Truncate(int64_t kept) {
  std::vector<int64_t> ranks;
  for (int64_t i = kept; i < num_keys(); ++i) ranks.push_back(i);
  Remove(ranks);
}

void World::RemoveBadRanks(Bytes* bytes) {
  const int64_t n = num_keys();
  const std::vector<int64_t> bad[] = {{n}, {-1}, {0, 0}, {n - 1, 0}, {0, n + 5}};
  const int64_t which = n == 0 ? bytes->Below(2) : bytes->Below(n == 1 ? 3 : 5);
  const Solution before = single_->solution();
  LETHE_CHECK(!single_->RemoveSeveral(bad[which]).ok());
  LETHE_CHECK(single_->keys() == keys_ && SameBits(before, single_->solution()));
}

void World::Operate(Bytes* bytes) {
  const uint8_t what = bytes->Next();
  const int64_t n = num_keys();
  switch (n == 0 ? what % 4 : what % 12) {
    case 0:
    case 1:
    case 2:
      if (n < kMaxKeys) Add(ReadKey(bytes));
      break;
    case 3: {
      std::vector<double> keys;
      for (int64_t left = std::min(kMaxKeys - n, 1 + bytes->Below(8)); left > 0; --left) {
        const std::vector<double> key = ReadKey(bytes);
        keys.insert(keys.end(), key.begin(), key.end());
      }
      Add(keys);
      break;
    }
    case 4:
    case 5:
    case 6:
      Remove({bytes->Below(n)});
      break;
    case 7: {
      std::vector<int64_t> ranks;
      const int mask = bytes->Next() | bytes->Next() << 8 | bytes->Next() << 16;
      for (int64_t i = 0; i < n; ++i) {
        if ((mask >> i & 1) != 0) ranks.push_back(i);
      }
      Remove(ranks);
      break;
    }
    case 8:
      Truncate(bytes->Below(n + 1));
      break;
    case 9: {  // copies go on in the place of what they were made of
      single_ = std::make_unique<IncrementalSolver>(*single_);
      folded_ = std::make_unique<CanonicalSolver>(*folded_);
      edited_ = std::make_unique<CanonicalSolver>(*edited_);
      break;
    }
    case 10:
      RemoveBadRanks(bytes);
      break;
    default:
      Compare();
  }
}

void World::Compare() {
  const Solution fresh = svdd::SolveCanonical(params_, keys_).value();
  LETHE_CHECK(single_->keys() == keys_ && edited_->keys() == keys_ && folded_->keys() == keys_);
  LETHE_CHECK(SameBits(fresh, single_->solution()));
  LETHE_CHECK(SameBits(fresh, edited_->solution()));
  LETHE_CHECK(SameBits(fresh, folded_->solution()));
  LETHE_CHECK(svdd::KktViolation(params_, keys_, fresh) <= (fresh.ambiguous ? 1e-6 : 1e-12));
}

}  // namespace

void FuzzSvdd(absl::string_view input) {
  Bytes bytes(input);
  const absl::StatusOr<Params> params = ReadParams(&bytes);
  if (!params.ok()) return;
  World world(*params);
  for (int operation = 0; operation < kMaxOperations && !bytes.empty(); ++operation) {
    world.Operate(&bytes);
    if (operation % 4 == 3) world.Compare();
  }
  world.Compare();
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzSvdd)
