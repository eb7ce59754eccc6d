#include "paper/vitals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "kernels/base/status_macros.h"
#include "paper/numpy_random.h"
#include "paper/record_files.h"
#include "paper/report.h"

namespace lethe::paper {
namespace {

struct Limits {
  double least;
  double greatest;
};

// Outside of these a value is taken for an artefact (the paper's).
constexpr std::array<Limits, kNumSigns> kPlausible = {
    {{10, 300}, {20, 300}, {5, 220}, {2, 80}, {30, 100}, {25, 45}}};

std::optional<Sign> SignOf(absl::string_view parameter) {
  if (parameter == "HR") return Sign::kHeartRate;
  if (parameter == "SysABP" || parameter == "NISysABP") return Sign::kSystolic;
  if (parameter == "DiasABP" || parameter == "NIDiasABP") return Sign::kDiastolic;
  if (parameter == "RespRate") return Sign::kRespiration;
  if (parameter == "SaO2") return Sign::kSaturation;
  if (parameter == "Temp") return Sign::kTemperature;
  return std::nullopt;
}

struct HourMean {
  double sum = 0.0;
  int64_t count = 0;
};
using Hours = std::map<int64_t, std::array<HourMean, kNumSigns>>;

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

// Lines are "HH:MM,Parameter,Value".
Hours ReadRecord(absl::string_view text) {
  Hours hours;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
    int64_t hour = 0;
    double value = 0.0;
    if (fields.size() != 3 || !absl::SimpleAtoi(fields[0].substr(0, fields[0].find(':')), &hour) ||
        !absl::SimpleAtod(fields[2], &value)) {
      continue;
    }
    const std::optional<Sign> sign = SignOf(fields[1]);
    if (!sign.has_value()) continue;
    const auto s = static_cast<size_t>(*sign);
    if (value < kPlausible[s].least || value > kPlausible[s].greatest) continue;
    HourMean& mean = hours[hour][s];
    mean.sum += value;
    ++mean.count;
  }
  return hours;
}

// From the first measured hour to the last, hours without a value as kGap.
Points Grid(const Hours& hours) {
  Points grid{kNumSigns, {}};
  if (hours.empty()) return grid;
  for (int64_t hour = hours.begin()->first; hour <= hours.rbegin()->first; ++hour) {
    std::array<double, kNumSigns> row{};
    row.fill(kGap);
    if (const auto found = hours.find(hour); found != hours.end()) {
      for (size_t s = 0; s < kNumSigns; ++s) {
        const HourMean& mean = found->second[s];
        if (mean.count > 0) row[s] = mean.sum / static_cast<double>(mean.count);
      }
    }
    grid.Add(row);
  }
  return grid;
}

// Forward, then backward within the stay, then `otherwise`.
void FillGaps(const std::array<double, kNumSigns>& otherwise, Stay* stay) {
  std::vector<double>& x = stay->raw.x;
  for (size_t s = 0; s < kNumSigns; ++s) {
    for (size_t i = s + kNumSigns; i < x.size(); i += kNumSigns) {
      if (std::isnan(x[i])) x[i] = x[i - kNumSigns];
    }
    for (size_t i = x.size() - kNumSigns + s; i >= kNumSigns; i -= kNumSigns) {
      if (std::isnan(x[i - kNumSigns])) x[i - kNumSigns] = x[i];
    }
    stay->measured[s] = !std::isnan(x[s]);
    for (size_t i = s; i < x.size(); i += kNumSigns) {
      if (std::isnan(x[i])) x[i] = otherwise[s];
    }
  }
}

void MarkEvents(Stay* stay) {
  for (int64_t hour = 0; hour < stay->raw.count(); ++hour) {
    bool event = false;
    for (size_t s = 0; s < kNumSigns; ++s) {
      event |= IsEvent(static_cast<Sign>(s), stay->raw.row(hour)[s]);
    }
    stay->event.push_back(event);
  }
}

void SetMoments(Vitals* vitals) {
  for (size_t s = 0; s < kNumSigns; ++s) {
    double sum = 0.0;
    double count = 0.0;
    for (const Stay& stay : vitals->stays) {
      for (size_t i = s; i < stay.raw.x.size(); i += kNumSigns) sum += stay.raw.x[i];
      count += static_cast<double>(stay.raw.count());
    }
    vitals->mean[s] = sum / count;
    double squares = 0.0;
    for (const Stay& stay : vitals->stays) {
      for (size_t i = s; i < stay.raw.x.size(); i += kNumSigns) {
        squares += (stay.raw.x[i] - vitals->mean[s]) * (stay.raw.x[i] - vitals->mean[s]);
      }
    }
    const double deviation = std::sqrt(squares / count);
    vitals->deviation[s] = deviation < 1e-6 ? 1.0 : deviation;
  }
}

}  // namespace

bool IsEvent(Sign sign, double value) {
  switch (sign) {
    case Sign::kHeartRate:
      return value > 130 || value < 40;
    case Sign::kSystolic:
      return value < 90 || value > 200;
    case Sign::kDiastolic:
      return false;
    case Sign::kRespiration:
      return value > 30 || value < 6;
    case Sign::kSaturation:
      return value < 90;
    case Sign::kTemperature:
      return value > 38.5 || value < 35.0;
  }
  return false;
}

Points Vitals::Keys(const Stay& stay) const {
  Points keys = stay.raw;
  for (size_t i = 0; i < keys.x.size(); ++i) {
    keys.x[i] = (keys.x[i] - mean[i % kNumSigns]) / deviation[i % kNumSigns];
  }
  return keys;
}

absl::StatusOr<Vitals> LoadChallenge2012(const std::string& path) {
  LETHE_ASSIGN_OR_RETURN(const auto files, ReadRecordFiles(path));
  Vitals vitals;
  std::array<std::vector<double>, kNumSigns> measured;  // all hourly means, for the medians
  for (const auto& [name, text] : files) {
    Stay stay;
    if (!absl::SimpleAtoi(name, &stay.record)) continue;  // Outcomes-a.txt
    stay.raw = Grid(ReadRecord(text));
    for (size_t i = 0; i < stay.raw.x.size(); ++i) {
      if (!std::isnan(stay.raw.x[i])) measured[i % kNumSigns].push_back(stay.raw.x[i]);
    }
    if (stay.raw.count() >= kHoursLeast) vitals.stays.push_back(std::move(stay));
  }
  for (const std::vector<double>& values : measured) {
    if (values.empty() || vitals.stays.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--data ", path, ": no records with the six vital signs; ", kWhereVitalsAre));
    }
  }
  std::array<double, kNumSigns> medians{};
  for (size_t s = 0; s < kNumSigns; ++s) medians[s] = Median(measured[s]);
  for (Stay& stay : vitals.stays) {
    FillGaps(medians, &stay);
    MarkEvents(&stay);
  }
  SetMoments(&vitals);
  return vitals;
}

Vitals MakeSyntheticVitals(int64_t num_stays, uint64_t seed) {
  constexpr int64_t kHours = 48;
  constexpr double kStart = 0.02;  // of an excursion, an hour
  constexpr std::array<double, kNumSigns> kLevel = {82, 122, 62, 18, 97, 36.9};
  constexpr std::array<double, kNumSigns> kBetween = {9, 10, 7, 2, 0.8, 0.25};  // patients
  constexpr std::array<double, kNumSigns> kWithin = {5, 7, 5, 1.8, 0.6, 0.2};   // hours
  constexpr std::array<double, kNumSigns> kExcursion = {58, -42, -22, 16, -10, 2.2};
  constexpr double kCarry = 0.9;
  DefaultRng random(seed);
  Vitals vitals;
  for (int64_t record = 0; record < num_stays; ++record) {
    Stay stay{record, {kNumSigns, {}}, {}, {}};
    stay.measured.fill(true);
    std::array<double, kNumSigns> level{};
    for (size_t s = 0; s < kNumSigns; ++s) level[s] = kLevel[s] + kBetween[s] * random.Normal();
    std::array<double, kNumSigns> wander{};
    std::array<bool, kNumSigns> out{};
    int64_t hours_left = 0;
    for (int64_t hour = 0; hour < kHours; ++hour) {
      if (hours_left == 0 && random.Uniform() < kStart) {
        hours_left = 2 + random.Below(3);
        out.fill(false);
        for (const int64_t s : random.Choice(kNumSigns, 2 + random.Below(2))) {
          out[static_cast<size_t>(s)] = true;
        }
      }
      std::array<double, kNumSigns> row{};
      for (size_t s = 0; s < kNumSigns; ++s) {
        const double innovation = std::sqrt(1.0 - kCarry * kCarry) * random.Normal();
        wander[s] = kCarry * wander[s] + innovation;
        row[s] = level[s] + kWithin[s] * wander[s];
        if (hours_left > 0 && out[s]) row[s] += kExcursion[s] * (0.8 + 0.4 * random.Uniform());
      }
      hours_left = std::max<int64_t>(hours_left - 1, 0);
      stay.raw.Add(row);
    }
    MarkEvents(&stay);
    vitals.stays.push_back(std::move(stay));
  }
  SetMoments(&vitals);
  return vitals;
}

Points DistinctHours(const Points& keys, int64_t most, double distance) {
  Points distinct{keys.dim, {}};
  for (int64_t hour = 0; hour < std::min(most, keys.count()); ++hour) {
    bool apart = true;
    for (int64_t i = 0; i < distinct.count(); ++i) {
      apart = apart && SquaredDistance(distinct.row(i), keys.row(hour)) > distance * distance;
    }
    if (apart) distinct.Add(keys.row(hour));
  }
  return distinct;
}

}  // namespace lethe::paper
