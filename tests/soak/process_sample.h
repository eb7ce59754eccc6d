// ProcessSample, SampleProcess: what a process holds of the system, from /proc.
//
// Units:     bytes.
// Requires:  a process of this user that runs.
// Threads:   safe.
#ifndef LETHE_TESTS_SOAK_PROCESS_SAMPLE_H_
#define LETHE_TESTS_SOAK_PROCESS_SAMPLE_H_

#include <cstdint>
#include <string>

#include <sys/types.h>

namespace lethe::soak {

struct ProcessSample {
  int64_t resident_bytes = 0;
  int64_t num_descriptors = 0;
  int64_t num_threads = 0;
};

// Zeros when there is no such process.
ProcessSample SampleProcess(pid_t process);
// Kernel, connections and mappings apart: what each descriptor is, how many of it ("23 socket, 4 /dev/shm/…/log.db").
std::string DescribeDescriptors(pid_t process);

}  // namespace lethe::soak

#endif  // LETHE_TESTS_SOAK_PROCESS_SAMPLE_H_
