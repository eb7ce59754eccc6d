#include <cuda_runtime_api.h>

#include "kernels/base/device.h"

namespace lethe {

std::vector<Device> DescribeDevices() {
  std::vector<Device> devices(1);
  devices[0].name = "cpu";
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    devices[0].note = cudaGetErrorString(error);
    return devices;
  }
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) continue;
    Device device;
    device.kind = DeviceKind::kCuda;
    device.name = properties.name;
    device.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    devices.push_back(device);
  }
  return devices;
}

}  // namespace lethe
