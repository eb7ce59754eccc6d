// DescribeDevices: the devices that sessions could live on.
//
// Shapes:   none.
// Requires: nothing.
// Effects:  none. Without nvcc at build time, or without a driver, the list holds the CPU alone and
//           its note says why.
// Numerics: none.
// Threads:  safe.
#ifndef LETHE_KERNELS_BASE_DEVICE_H_
#define LETHE_KERNELS_BASE_DEVICE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lethe {

enum class DeviceKind { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;          // "cpu", or the GPU's name
  int64_t memory_bytes = 0;  // device memory; 0 for the CPU
  std::string note;          // why a built-in back end offers no device; empty otherwise
};

// The CPU first, then every CUDA device that this build can use.
std::vector<Device> DescribeDevices();

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_DEVICE_H_
