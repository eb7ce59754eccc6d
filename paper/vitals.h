// Vitals, LoadChallenge2012, MakeSyntheticVitals: hourly vital signs of ICU stays.
//
// Equation:  as the paper's clinical preprocessing: hourly means of values within plausible limits;
//            gaps filled forward, then backward, then with the cohort's median; keys are the values
//            less the cohort's mean over its deviation. An event hour crosses a threshold: heart
//            rate > 130 or < 40, systolic > 200 or < 90, respiration > 30 or < 6, saturation < 90,
//            temperature > 38.5 or < 35. Synthetic: six AR(1) series about a patient's own level,
//            x_t = 0.9 x_{t-1} + noise; an excursion of 2 to 4 hours begins with probability 0.02
//            an hour and moves two or three signs far out.
// Shapes:    raw: [hours][kNumSigns], in the order of Sign.
// Units:     1/min, mmHg, mmHg, 1/min, %, degrees Celsius; one row an hour.
// Requires:  none.
// Rejects:   LoadChallenge2012: NOT_FOUND for a path that is not there, INVALID_ARGUMENT for one
//            with no readable record; the message names --data.
// Effects:   LoadChallenge2012 runs xz or gzip for a packed archive.
// Numerics:  deterministic; stays are ordered by record number.
// Threads:   safe.
#ifndef LETHE_PAPER_VITALS_H_
#define LETHE_PAPER_VITALS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "paper/points.h"

namespace lethe::paper {

enum class Sign : size_t {
  kHeartRate,
  kSystolic,
  kDiastolic,
  kRespiration,
  kSaturation,
  kTemperature
};
inline constexpr size_t kNumSigns = 6;

struct Stay {
  int64_t record = 0;
  Points raw;                              // dim kNumSigns
  std::vector<bool> event;                 // per hour, of any sign
  std::array<bool, kNumSigns> measured{};  // at least once
};

struct Vitals {
  std::vector<Stay> stays;
  std::array<double, kNumSigns> mean{};
  std::array<double, kNumSigns> deviation{};

  // The stay's standardised hours.
  Points Keys(const Stay& stay) const;
};

// Whether the value of this sign makes an hour an event.
bool IsEvent(Sign sign, double value);

// Stays of at least kHoursLeast hours.
inline constexpr int64_t kHoursLeast = 40;
absl::StatusOr<Vitals> LoadChallenge2012(const std::string& path);
Vitals MakeSyntheticVitals(int64_t num_stays, uint64_t seed);

// Where the data is to be had; for messages.
inline constexpr char kWhereVitalsAre[] =
    "name it with --data: PhysioNet/CinC Challenge 2012 set A, "
    "https://physionet.org/content/challenge-2012/1.0.0/set-a.tar.gz";

// Those hours of `keys` that lie farther than `distance` from every earlier one that stays, of the
// first `most` (the paper's dedupe).
Points DistinctHours(const Points& keys, int64_t most, double distance);

}  // namespace lethe::paper

#endif  // LETHE_PAPER_VITALS_H_
