// Goal: a slot's state goes to the host and back, to another slot, and to nothing, without a bit's change and
// without a byte left.
// Method: a session that goes on from a copy has the bits of one that went on where it was; images of freed
// slots.
#include "server/device/state_pool.h"

#include <algorithm>

#include "server/device/slot_arrays.h"
#include "tests/server/device_world.h"

namespace lethe {
namespace {

using testing::DeviceSession;
using testing::DeviceWorld;
using testing::LogitBits;
using testing::MakeDeviceWorld;
using testing::NewSession;
using testing::PartsOf;
using testing::RandomModel;
using testing::Step;

// What it has taken and answered; slot and sv are the caller's to give.
DeviceSession CopyOf(const DeviceSession& session) {
  DeviceSession copy;
  copy.ids = session.ids;
  copy.done = session.done;
  copy.logits = session.logits;
  return copy;
}

class StatePoolTest : public testing::DeviceTest {};
LETHE_ON_EVERY_DEVICE(StatePoolTest);

TEST_P(StatePoolTest, CopiesGoOnWithTheSameBits) {
  DeviceWorld world = MakeDeviceWorld(queue(), RandomModel(71), 4, {256, 1});
  DeviceSession original = NewSession(&world, 180, 1);
  DeviceSession* const of_original = &original;
  Step(&world, {&of_original, 1}, {101});
  DeviceSession copy = CopyOf(original);
  DeviceSession restored = CopyOf(original);
  copy.slot = *world.pool->Allocate();
  restored.slot = *world.pool->Allocate();
  ASSERT_OK(world.pool->CopySlot(original.slot, copy.slot));
  ASSERT_OK_AND_ASSIGN(const SlotImage image, world.pool->CopyToHost(original.slot));
  EXPECT_EQ(image.size(), world.model->slot_bytes());
  ASSERT_OK_AND_ASSIGN(copy.sv, original.sv->Clone());
  ASSERT_OK_AND_ASSIGN(const SvSession::Snapshot gates, original.sv->TakeSnapshot());
  Step(&world, {&of_original, 1}, {79});
  ASSERT_OK(world.pool->CopyFromHost(image, restored.slot));
  ASSERT_OK_AND_ASSIGN(restored.sv, original.sv->Clone());
  ASSERT_OK(restored.sv->Restore(gates));
  for (DeviceSession* session : {&copy, &restored}) {
    Step(&world, {&session, 1}, {79});
    EXPECT_EQ(LogitBits(session->logits), LogitBits(original.logits));
    EXPECT_EQ(audit::ExplainDifference(PartsOf(world, *session), PartsOf(world, original)), "");
  }
}

TEST_P(StatePoolTest, FreedSlotsAreZeroAndAllocatedOnesAreNew) {
  DeviceWorld world = MakeDeviceWorld(queue(), RandomModel(72), 1, {256, 1});
  DeviceSession first = NewSession(&world, 100, 1);
  ASSERT_OK_AND_ASSIGN(const SlotImage initial, world.pool->CopyToHost(first.slot));
  DeviceSession* const only = &first;
  Step(&world, {&only, 1}, {100});
  EXPECT_EQ(world.pool->Allocate().status().message(),
            "all 1 slots of the device's state pool are taken");
  ASSERT_OK(world.pool->Free(first.slot));
  SlotImage freed(initial.size(), std::byte{1});
  ASSERT_OK_AND_ASSIGN(DeviceArray<std::byte> image,
                       DeviceArray<std::byte>::Zeros(queue(), initial.size()));
  ASSERT_OK(GatherSlot(queue(), world.pool->arrays().table(), first.slot, image.data()));
  ASSERT_OK(queue()->CopyToHost(image.data(), image.size(), freed.data()));
  EXPECT_TRUE(
      std::all_of(freed.begin(), freed.end(), [](std::byte b) { return b == std::byte{0}; }));
  ASSERT_OK_AND_ASSIGN(const int32_t slot, world.pool->Allocate());
  ASSERT_OK_AND_ASSIGN(const SlotImage again, world.pool->CopyToHost(slot));
  EXPECT_EQ(again, initial);
}

TEST_P(StatePoolTest, ImagesOfAnotherModelAreRefused) {
  DeviceWorld world = MakeDeviceWorld(queue(), RandomModel(73), 1, {64, 1});
  const DeviceSession session = NewSession(&world, 1, 1);
  EXPECT_EQ(world.pool->CopyFromHost(SlotImage(16), session.slot).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lethe
