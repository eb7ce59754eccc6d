#include "paper/regimes.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "paper/model_keys.h"
#include "paper/vitals.h"

namespace lethe::paper {
namespace {

constexpr int64_t kKeys = 24;
constexpr int64_t kDim = 6;
constexpr int64_t kHoursMost = 40;
constexpr double kDistance = 0.1;

absl::StatusOr<Regime> IcuRegime(const Options& options) {
  if (options.data.empty()) {
    return Regime{"ICU vitals", absl::StrCat("not run: no data; ", kWhereVitalsAre), {}};
  }
  LETHE_ASSIGN_OR_RETURN(Vitals loaded, LoadChallenge2012(options.data));
  const auto vitals = std::make_shared<const Vitals>(std::move(loaded));
  return Regime{"ICU vitals", "", [vitals](DefaultRng* random) {
                  const auto drawn = random->Below(static_cast<int64_t>(vitals->stays.size()));
                  const Stay& stay = vitals->stays[static_cast<size_t>(drawn)];
                  return DistinctHours(vitals->Keys(stay), kHoursMost, kDistance);
                }};
}

absl::StatusOr<Regime> LearnedRegime(const Options& options) {
  LETHE_ASSIGN_OR_RETURN(Points keys, ModelKeys(options.model, options.text));
  if (keys.count() < kKeys) {
    return Regime{
        "learned keys", "not run: no model; name it with --model, and a text with --text", {}};
  }
  const auto all = std::make_shared<const Points>(std::move(keys));
  return Regime{"learned keys", "",
                [all](DefaultRng* random) { return all->At(random->Choice(all->count(), kKeys)); }};
}

}  // namespace

Points GaussianKeys(DefaultRng* random) { return {kDim, random->Normals(kKeys * kDim)}; }

Points RedundantKeys(DefaultRng* random) {
  constexpr int64_t kCentres = 4;
  const Points centres{kDim, random->Normals(kCentres * kDim)};
  const std::vector<double> noise = random->Normals(kKeys * kDim);
  Points keys{kDim, {}};
  for (int64_t i = 0; i < kKeys; ++i) {
    for (const double x : centres.row(i / (kKeys / kCentres))) keys.x.push_back(2.0 * x);
  }
  return keys.Moved(0.02, noise);
}

absl::StatusOr<std::vector<Regime>> MakeRegimes(const Options& options) {
  std::vector<Regime> regimes = {{"Gaussian", "", &GaussianKeys},
                                 {"redundant", "", &RedundantKeys}};
  LETHE_ASSIGN_OR_RETURN(Regime icu, IcuRegime(options));
  regimes.push_back(std::move(icu));
  LETHE_ASSIGN_OR_RETURN(Regime learned, LearnedRegime(options));
  regimes.push_back(std::move(learned));
  return regimes;
}

}  // namespace lethe::paper
