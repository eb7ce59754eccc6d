// Experiment, Options, Experiments: the papers' tables that `lethe paper` prints, one entry each.
//
// Equation:  each experiment's file names its source.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   run: NOT_FOUND or INVALID_ARGUMENT, naming the option, for data or a model that was
//            asked for and cannot be used; what the solver rejects.
// Effects:   run reads the files named by the options, and writes nothing.
// Numerics:  everything is drawn from the seed; times are of this machine.
// Threads:   compatible; one compute thread.
#ifndef LETHE_PAPER_EXPERIMENTS_H_
#define LETHE_PAPER_EXPERIMENTS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "paper/report.h"

namespace lethe::paper {

inline constexpr double kDefaultRidge = 0x1.0p-11;
// What stands in for the paper's 0: MakeParams takes no smaller one.
inline constexpr double kLeastRidge = 1e-8;

struct Options {
  uint32_t seed = 0;
  int64_t trials = 0;
  std::string data;   // "" = none was named
  std::string model;  // "" = the one beside, where it is there
  std::string text;
};

// What an experiment takes beside the seed.
struct Needs {
  bool trials = false;
  bool data = false;
  bool model = false;
};

struct Experiment {
  const char* name;
  const char* shows;
  Needs needs;
  int64_t trials;  // of the paper
  absl::StatusOr<Report> (*run)(const Options& options);
};

absl::Span<const Experiment> Experiments();

absl::StatusOr<Report> RunDeletionAudit(const Options& options);
absl::StatusOr<Report> RunDeletionLatency(const Options& options);
absl::StatusOr<Report> RunTrajectories(const Options& options);
absl::StatusOr<Report> RunRareRecall(const Options& options);
absl::StatusOr<Report> RunIcuStream(const Options& options);
absl::StatusOr<Report> RunSelectiveCopy(const Options& options);
absl::StatusOr<Report> RunNegativeControl(const Options& options);
absl::StatusOr<Report> RunReserveCounterexample(const Options& options);

}  // namespace lethe::paper

#endif  // LETHE_PAPER_EXPERIMENTS_H_
