// DeviceTest: a suite that runs once on every kind of device; where there is none of a kind its cases
// skip and say why.
//
//   class PalimpsaFoldTest : public testing::DeviceTest {};
//   LETHE_ON_EVERY_DEVICE(PalimpsaFoldTest);
//   TEST_P(PalimpsaFoldTest, FollowsTheReference) { ... *queue() ... }
//
// Threads: as GoogleTest.
#ifndef LETHE_TESTS_TESTING_DEVICE_TEST_H_
#define LETHE_TESTS_TESTING_DEVICE_TEST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/base/queue.h"

namespace lethe::testing {

class DeviceTest : public ::testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Queue>> queue = Queue::Create(GetParam());
    if (!queue.ok()) GTEST_SKIP() << "skipped because " << queue.status().message();
    queue_ = *std::move(queue);
  }

  Queue* queue() { return queue_.get(); }

  template <typename T>
  DeviceArray<T> OnDevice(const std::vector<T>& values) {
    auto array = DeviceArray<T>::From(queue(), values);
    EXPECT_TRUE(array.ok()) << array.status();
    return *std::move(array);
  }
  template <typename T>
  DeviceArray<T> ZerosOnDevice(size_t size) {
    auto array = DeviceArray<T>::Zeros(queue(), size);
    EXPECT_TRUE(array.ok()) << array.status();
    return *std::move(array);
  }
  template <typename T>
  std::vector<T> OnHost(const DeviceArray<T>& array) {
    auto values = array.Get();
    EXPECT_TRUE(values.ok()) << values.status();
    return *std::move(values);
  }

 private:
  std::unique_ptr<Queue> queue_;
};

inline std::string DeviceTestName(const ::testing::TestParamInfo<DeviceKind>& info) {
  return info.param == DeviceKind::kCuda ? "Cuda" : "Cpu";
}

}  // namespace lethe::testing

#define LETHE_ON_EVERY_DEVICE(suite)                                                           \
  INSTANTIATE_TEST_SUITE_P(                                                                    \
      Device, suite, ::testing::Values(::lethe::DeviceKind::kCpu, ::lethe::DeviceKind::kCuda), \
      ::lethe::testing::DeviceTestName)

#endif  // LETHE_TESTS_TESTING_DEVICE_TEST_H_
