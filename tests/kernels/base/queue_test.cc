// Goal: memory of a queue's device is zero at first, takes and gives back values, and a device that is
// absent or full is a status, not an abort.
// Method: the same cases on the host and on a CUDA device.
#include "kernels/base/queue.h"

#include "tests/testing/device_test.h"

namespace lethe {
namespace {

class QueueTest : public testing::DeviceTest {};
LETHE_ON_EVERY_DEVICE(QueueTest);

TEST_P(QueueTest, ArraysStartAtZero) {
  // Freed blocks are handed out again: the second array may well be the first one's memory.
  { const DeviceArray<float> used = OnDevice(std::vector<float>(1000, 3.0f)); }
  EXPECT_EQ(OnHost(ZerosOnDevice<float>(1000)), std::vector<float>(1000));
}

TEST_P(QueueTest, ArraysKeepWhatTheyAreGiven) {
  DeviceArray<int32_t> array = OnDevice(std::vector<int32_t>{1, 2, 3});
  EXPECT_EQ(OnHost(array), (std::vector<int32_t>{1, 2, 3}));
  ASSERT_TRUE(array.Set(std::vector<int32_t>{4, 5, 6}).ok());
  const DeviceArray<int32_t> moved = std::move(array);
  EXPECT_EQ(OnHost(moved), (std::vector<int32_t>{4, 5, 6}));
}

TEST_P(QueueTest, EmptyArraysHoldNothing) {
  const DeviceArray<float> empty = OnDevice(std::vector<float>());
  EXPECT_TRUE(empty.empty());
  EXPECT_TRUE(OnHost(empty).empty());
}

TEST_P(QueueTest, TooLargeAnArrayIsAStatusAndTheQueueGoesOn) {
  const auto array = DeviceArray<char>::Zeros(queue(), size_t{1} << 60);
  EXPECT_EQ(array.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(queue()->LaunchStatus("none").ok());
  EXPECT_EQ(OnHost(OnDevice(std::vector<float>{1.0f})), std::vector<float>{1.0f});
}

TEST_P(QueueTest, TimeIsThatOfTheWork) {
  const auto seconds = queue()->Time([] { return absl::OkStatus(); });
  ASSERT_TRUE(seconds.ok());
  EXPECT_GE(*seconds, 0.0);
  const auto failed = queue()->Time([] { return absl::DataLossError("work"); });
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace lethe
