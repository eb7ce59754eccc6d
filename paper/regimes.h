// Regime, MakeRegimes: where the keys of the deletion audit come from.
//
// Equation:  SV-Attention, experiments/forgetting_rigor.py. Gaussian: 24 keys N(0, I_6). Redundant:
//            four centres 2 N, six copies each + 0.02 N, d = 6. ICU vitals: up to 40 hours of a
//            random stay, those within 0.1 of an earlier one left out; the paper has MIMIC-IV here.
//            Learned: 24 keys drawn from those that the model's first support-vector head makes of
//            a text; the paper has a small recall model's.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   MakeRegimes: NOT_FOUND or INVALID_ARGUMENT for data, a model or a text that was named
//            and cannot be used.
// Effects:   reads the files.
// Numerics:  as numpy_random.h.
// Threads:   compatible.
#ifndef LETHE_PAPER_REGIMES_H_
#define LETHE_PAPER_REGIMES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "paper/experiments.h"
#include "paper/numpy_random.h"
#include "paper/points.h"

namespace lethe::paper {

struct Regime {
  std::string name;
  std::string missing;                      // why it cannot be run; "" = it can
  std::function<Points(DefaultRng*)> draw;  // a trial's keys
};

enum RegimeIndex : size_t { kGaussian, kRedundant, kIcu, kLearned, kNumRegimes };

Points GaussianKeys(DefaultRng* random);
Points RedundantKeys(DefaultRng* random);

// In the order of RegimeIndex.
absl::StatusOr<std::vector<Regime>> MakeRegimes(const Options& options);

}  // namespace lethe::paper

#endif  // LETHE_PAPER_REGIMES_H_
