// Goal: nothing of a session is left on its device once it has ended, and after any Forget a session is one that never saw what went.
// Method: a dump of every block that the engine's queue holds, searched for what a session's state held, with zeroing switched off
// too; random histories and Forgets with other sessions' load beside them, against fresh sessions.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <set>
#include <thread>

#include "kernels/base/fault.h"
#include "kernels/base/held_memory.h"
#include "server/session/session.h"
#include "tests/server/device_backed.h"
#include "tests/testing/fault_switch.h"

namespace lethe {
namespace {

using testing::BackedModel;
using testing::LogitBits;
using testing::MakeBacked;
using testing::RandomModel;
using testing::SampleIds;
using testing::Slots;

class DeviceErasureTest : public testing::DeviceSessionsTest {};
LETHE_ON_EVERY_DEVICE(DeviceErasureTest);

// What the engine's device and its page-locked host memory hold.
std::string DumpOf(DeviceEngine* engine) {
  std::string dump;
  EXPECT_OK(engine->Run([&](Queue* queue) -> absl::Status {
    for (const HeldBlock& block : HeldMemory()) {
      if (block.queue != queue) continue;
      const size_t begin = dump.size();
      dump.resize(begin + block.bytes);
      if (!block.on_device) {
        std::memcpy(dump.data() + begin, block.data, block.bytes);
        continue;
      }
      const absl::Status copied = queue->CopyToHost(block.data, block.bytes, dump.data() + begin);
      if (!copied.ok()) return copied;
    }
    return absl::OkStatus();
  }));
  return dump;
}

// How many of the markers are somewhere in the dump.
int64_t NumFound(const std::vector<std::string>& markers, const std::string& dump) {
  return std::count_if(markers.begin(), markers.end(), [&](const std::string& marker) {
    return memmem(dump.data(), dump.size(), marker.data(), marker.size()) != nullptr;
  });
}

// Runs of a state's image that say something, and the tokens as the device is told them.
std::vector<std::string> MarkersOf(const SlotImage& image, absl::Span<const int32_t> ids) {
  constexpr size_t kMarkerBytes = 24;
  std::vector<std::string> markers;
  const size_t step = std::max<size_t>(image.size() / 60 / kMarkerBytes, 1) * kMarkerBytes;
  for (size_t at = 0; at + kMarkerBytes <= image.size(); at += step) {
    const std::string marker(reinterpret_cast<const char*>(image.data() + at), kMarkerBytes);
    if (std::set<char>(marker.begin(), marker.end()).size() > 12) markers.push_back(marker);
  }
  markers.emplace_back(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t));
  return markers;
}

TEST_P(DeviceErasureTest, NothingOfASessionIsLeftOnTheDevice) {
  for (const std::shared_ptr<const Model>& model : {RandomModel(10), testing::SmallModel()}) {
    SCOPED_TRACE(model->config().name);
    const BackedModel backed = MakeBacked(GetParam(), model, Slots(3));
    DeviceEngine* engine = backed.engine.get();
    const std::vector<int32_t> ids = SampleIds(50, 77);
    for (const bool is_zeroed : {true, false}) {
      SCOPED_TRACE(is_zeroed);
      std::unique_ptr<EngineState> state = engine->NewState();
      ASSERT_OK(engine->Evaluate(state.get(), SampleIds(64, 78), {}, {}));
      ASSERT_OK(engine->Evaluate(state.get(), ids, {}, {}));
      ASSERT_OK_AND_ASSIGN(const EngineSnapshot snapshot, engine->Snapshot(state.get()));
      const std::vector<std::string> markers = MarkersOf(snapshot.image, ids);
      ASSERT_GT(markers.size(), 10u);
      // Some lie across two parts of the state.
      EXPECT_GE(NumFound(markers, DumpOf(engine)), std::ssize(markers) * 3 / 4);
      if (is_zeroed) {
        state = nullptr;
        ASSERT_OK(engine->Wipe());
        EXPECT_EQ(NumFound(markers, DumpOf(engine)), 0);
      } else {
        const testing::ScopedFault fault(Fault::kFreedMemoryKept);
        state = nullptr;
        ASSERT_OK(engine->Wipe());
        EXPECT_GT(NumFound(markers, DumpOf(engine)), 0);
      }
    }
  }
}

// C1 and C2 on a device, with load beside it: after any Forget a session is one that never saw what went.
void ExpectForgottenIsNeverSeen(
    DeviceKind device, const BackedModel& backed,
    const std::function<void(const ModelState&, absl::Span<const int32_t>)>& check) {
  std::atomic<bool> done{false};
  std::vector<std::thread> load;
  for (int i = 0; i < 3; ++i) {
    load.emplace_back([&, i] {
      while (!done.load()) {
        auto state = ModelState::Create(backed.model, {});
        ASSERT_OK(state);
        ASSERT_OK((*state)->Evaluate(SampleIds(90, static_cast<uint64_t>(i))));
        for (int t = 0; t < 20; ++t) ASSERT_OK((*state)->Evaluate({t}));
      }
    });
  }
  std::mt19937_64 random(9);
  for (int round = 0; round < (device == DeviceKind::kCuda ? 12 : 4); ++round) {
    SCOPED_TRACE(round);
    ASSERT_OK_AND_ASSIGN(const auto session, Session::Create(backed.model, SessionOptions()));
    const std::vector<int32_t> ids =
        SampleIds(150 + static_cast<int64_t>(random() % 200), random());
    for (size_t at = 0; at < ids.size();) {
      const size_t count = std::min<size_t>(1 + random() % 90, ids.size() - at);
      ASSERT_OK(
          session->Append(absl::MakeConstSpan(ids).subspan(at, count), "", InputKind::kPrompt));
      at += count;
    }
    ForgetSelector selector;
    std::vector<int32_t> kept;
    for (int64_t rank = 0; rank < session->num_tokens(); ++rank) {
      if (random() % 10 == 0) {
        selector.token_ids.push_back(session->inputs().at(rank).token_id);
      } else {
        kept.push_back(ids[static_cast<size_t>(rank)]);
      }
    }
    ASSERT_OK_AND_ASSIGN(const ForgetResult result,
                         session->Forget(selector, DerivedPolicy::kForgetDerived));
    EXPECT_EQ(result.way, ForgetWay::kReevaluation);
    ASSERT_OK_AND_ASSIGN(const auto fresh, Session::Create(backed.model, SessionOptions()));
    ASSERT_OK(fresh->Append(kept, "", InputKind::kPrompt));
    EXPECT_EQ(audit::ExplainDifference(session->StateParts().parts(), fresh->StateParts().parts()),
              "");
    EXPECT_EQ(result.digest_after, fresh->Digest());
    EXPECT_EQ(LogitBits(session->logits()), LogitBits(fresh->logits()));
    check(session->state(), kept);
  }
  done.store(true);
  for (std::thread& thread : load) thread.join();
}

TEST_P(DeviceErasureTest, AForgottenSessionIsOneThatNeverSaw) {
  for (const std::shared_ptr<const Model>& model :
       {RandomModel(9), testing::SmallModel(), testing::ContextualModel()}) {
    SCOPED_TRACE(model->config().name);
    const BackedModel backed = MakeBacked(GetParam(), model, Slots(4));
    alone_ = nullptr;
    ExpectForgottenIsNeverSeen(GetParam(), backed,
                               [&](const ModelState& state, absl::Span<const int32_t> kept) {
                                 ExpectEqual(backed, state, kept);
                               });
  }
}

}  // namespace
}  // namespace lethe
