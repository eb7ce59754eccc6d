// Goal: a slot of several pools goes to an image and back, to another slot, or to zeros, and no other slot
// changes.
// Method: pools of sizes that are and are not multiples of 16 bytes, against copies of their vectors.
#include "kernels/slot_copy/slot_copy.h"

#include <cstddef>
#include <vector>

#include "tests/testing/device_test.h"

namespace lethe {
namespace {

class SlotCopyTest : public testing::DeviceTest {
 protected:
  static constexpr int32_t kSlots = 5;

  void SetUp() override {
    DeviceTest::SetUp();
    if (queue() == nullptr) return;
    for (const size_t bytes : {size_t{16}, size_t{4}, size_t{36}, size_t{70000}}) {
      std::vector<std::byte> pool(kSlots * bytes);
      for (size_t i = 0; i < pool.size(); ++i) {
        pool[i] = static_cast<std::byte>(i * 131 + i / 251 + bytes);
      }
      parts_.push_back({nullptr, static_cast<int64_t>(bytes), static_cast<int64_t>(image_bytes_)});
      image_bytes_ += (bytes + 15) / 16 * 16;
      host_.push_back(pool);
      pools_.push_back(OnDevice(pool));
      parts_.back().pool = pools_.back().data();
    }
    device_parts_ = OnDevice(parts_);
    table_ = {device_parts_.data(), std::ssize(parts_), 70000};
  }

  std::byte* Slot(size_t part, int32_t slot) {
    return host_[part].data() + slot * parts_[part].bytes;
  }
  void ExpectPools() {
    for (size_t i = 0; i < pools_.size(); ++i) EXPECT_EQ(OnHost(pools_[i]), host_[i]) << i;
  }

  std::vector<std::vector<std::byte>> host_;
  std::vector<DeviceArray<std::byte>> pools_;
  std::vector<PooledPart> parts_;
  DeviceArray<PooledPart> device_parts_;
  PooledParts table_;
  size_t image_bytes_ = 0;
};
LETHE_ON_EVERY_DEVICE(SlotCopyTest);

TEST_P(SlotCopyTest, ImageAndBack) {
  DeviceArray<std::byte> image = ZerosOnDevice<std::byte>(image_bytes_);
  ASSERT_TRUE(GatherSlot(queue(), table_, 3, image.data()).ok());
  std::vector<std::byte> want(image_bytes_);
  for (size_t i = 0; i < parts_.size(); ++i) {
    std::copy_n(Slot(i, 3), parts_[i].bytes, want.begin() + parts_[i].begin);
  }
  EXPECT_EQ(OnHost(image), want);
  ExpectPools();
  ASSERT_TRUE(ScatterSlot(queue(), table_, image.data(), 1).ok());
  for (size_t i = 0; i < parts_.size(); ++i) std::copy_n(Slot(i, 3), parts_[i].bytes, Slot(i, 1));
  ExpectPools();
}

TEST_P(SlotCopyTest, AnotherSlotAndZeros) {
  ASSERT_TRUE(CopySlot(queue(), table_, 0, 4).ok());
  for (size_t i = 0; i < parts_.size(); ++i) std::copy_n(Slot(i, 0), parts_[i].bytes, Slot(i, 4));
  ExpectPools();
  ASSERT_TRUE(ZeroSlot(queue(), table_, 2).ok());
  for (size_t i = 0; i < parts_.size(); ++i) {
    std::fill_n(Slot(i, 2), parts_[i].bytes, std::byte{0});
  }
  ExpectPools();
}

}  // namespace
}  // namespace lethe
