// Goal: a mutant is active only inside its ScopedFault, and DescribeDevices always offers the CPU.
// Method: direct calls.

#include "gtest/gtest.h"

#include "kernels/base/device.h"
#include "tests/testing/fault_switch.h"

namespace lethe {
namespace {

TEST(FaultTest, IsOffUnlessSwitchedOn) {
  EXPECT_FALSE(FaultActive(Fault::kPolishSkipped));
  {
    const testing::ScopedFault fault(Fault::kPolishSkipped);
    EXPECT_TRUE(FaultActive(Fault::kPolishSkipped));
    EXPECT_FALSE(FaultActive(Fault::kTreeOverChunks));
  }
  EXPECT_FALSE(FaultActive(Fault::kPolishSkipped));
}

TEST(DeviceTest, TheCpuIsAlwaysThere) {
  const std::vector<Device> devices = DescribeDevices();
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices[0].kind, DeviceKind::kCpu);
}

}  // namespace
}  // namespace lethe
