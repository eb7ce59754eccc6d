// Samples, MachineName, SampleText: what every benchmark needs to say what it measured.
//
// Shapes:   none.
// Units:    as the caller's samples.
// Requires: Samples: at least one value.
// Effects:  none.
// Numerics: median of an even count is the mean of the middle two.
// Threads:  compatible.
#ifndef LETHE_SERVER_BENCH_REPORT_H_
#define LETHE_SERVER_BENCH_REPORT_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lethe::bench {

struct Samples {
  std::vector<double> values;

  double Median() const;
  double Min() const;
  double Max() const;
};

// Processor name and number of logical processors.
std::string MachineName();

// Seconds since an arbitrary origin, monotonic.
double Now();

// English-looking text of `num_bytes` bytes, the same for the same seed: words drawn from a fixed list.
std::vector<int32_t> SampleText(int64_t num_bytes, uint64_t seed);

}  // namespace lethe::bench

#endif  // LETHE_SERVER_BENCH_REPORT_H_
