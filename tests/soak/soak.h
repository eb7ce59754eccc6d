// RunSoak: many clients on one lethe-server for a time, in rounds; after each round, when all are silent, what the process holds; at the
// end every session is compared with what its client knows, and a sample with fresh sessions.
//
//   resident memory      the median of the last third of the rounds is at most kGrowthMax above that of the third before it, which is
//                        behind the warm-up; only in a run of kLeakMinutes on an uninstrumented build, as less says nothing
//   descriptors, threads once all clients are silent, within kSlack of what they were after the first round
//
// Units:     seconds, bytes.
// Requires:  the program lethe-server of this build, and nobody else's use of its standard output.
// Rejects:   none: what fails is a complaint of the report.
// Effects:   a server in a directory of its own, which is removed; its log is searched for canaries.
// Threads:   one at a time.
#ifndef LETHE_TESTS_SOAK_SOAK_H_
#define LETHE_TESTS_SOAK_SOAK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/soak/process_sample.h"

namespace lethe::soak {

inline constexpr double kGrowthMax = 0.05;
inline constexpr double kLeakMinutes = 5;
inline constexpr int64_t kSlack = 4;

struct SoakOptions {
  double seconds = 10;
  int num_sessions = 24;
  uint64_t seed = 1;
  int num_rounds = 3;
  // Sessions above it leave memory and come back: the canaries' test of what is shared then.
  int resident_mib = 16;
  bool check_memory = true;
  bool print_rounds = false;
};

struct SoakReport {
  std::string counts;  // one line each
  std::vector<ProcessSample> samples;
  std::vector<std::string> complaints;
  int64_t num_complaints = 0;
  int64_t num_steps = 0;
  int64_t num_states = 0;  // compared with fresh ones
};

SoakReport RunSoak(const SoakOptions& options);

}  // namespace lethe::soak

#endif  // LETHE_TESTS_SOAK_SOAK_H_
