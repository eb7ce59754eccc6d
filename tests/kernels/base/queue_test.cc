// Goal: memory of a queue's device is zero at first, takes and gives back values, and a device that is
// absent or full is a status, not an abort.
// Method: the same cases on the host and on a CUDA device.
#include "kernels/base/queue.h"

#include <algorithm>

#include "kernels/base/launch_graph.h"
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

TEST_P(QueueTest, HostArraysStartAtZeroAndGoToTheDevice) {
  auto host = HostArray<int32_t>::Zeros(queue(), 100);
  ASSERT_TRUE(host.ok());
  EXPECT_EQ(std::vector<int32_t>(host->data(), host->data() + 100), std::vector<int32_t>(100));
  std::fill_n(host->data(), 100, 7);
  const HostArray<int32_t> moved = *std::move(host);
  DeviceArray<int32_t> device = ZerosOnDevice<int32_t>(100);
  ASSERT_TRUE(queue()->CopyToDevice(moved.data(), 400, device.data()).ok());
  EXPECT_EQ(OnHost(device), std::vector<int32_t>(100, 7));
  EXPECT_EQ(HostArray<char>::Zeros(queue(), size_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_P(QueueTest, ARecordedCopyReadsMemoryAsItIsWhenItIsLaunched) {
  if (GetParam() == DeviceKind::kCpu) GTEST_SKIP() << "skipped because the host records nothing";
  auto host = HostArray<int32_t>::Zeros(queue(), 4);
  ASSERT_TRUE(host.ok());
  DeviceArray<int32_t> device = ZerosOnDevice<int32_t>(4);
  const auto copy = [&] { return queue()->CopyToDevice(host->data(), 16, device.data()); };
  auto graph = LaunchGraph::Capture(queue(), copy);
  ASSERT_TRUE(graph.ok()) << graph.status();
  for (const int32_t value : {5, 6}) {
    std::fill_n(host->data(), 4, value);
    ASSERT_TRUE(graph->Launch(queue()).ok());
    EXPECT_EQ(OnHost(device), std::vector<int32_t>(4, value));
  }
  const auto waits = [&] { return queue()->Finish(); };
  EXPECT_EQ(LaunchGraph::Capture(queue(), waits).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(OnHost(device), std::vector<int32_t>(4, 6)) << "the queue does not go on";
}

}  // namespace
}  // namespace lethe
