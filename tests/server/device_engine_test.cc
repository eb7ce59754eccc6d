// Goal: sessions that an engine evaluates together end as each would alone on the CPU, whoever comes when, spilled or not; decoders go
// on beside prompts; one bad session, a device that fails and an end in between leave the others as promised.
// Method: the host queue, whose bits are CpuModelState's; threads that decode, prompt, clone, restore and forget; the record of
// each step. On a GPU the same against an engine that has one session at a time.
#include "server/device/device_engine.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <thread>

#include "kernels/base/fault.h"
#include "server/error/error_info.h"
#include "server/model/synthetic_model.h"
#include "tests/server/device_backed.h"
#include "tests/testing/fault_switch.h"

namespace lethe {
namespace {

using testing::BackedModel;
using testing::MakeBacked;
using testing::RandomModel;
using testing::SampleIds;
using testing::Slots;

class DeviceEngineTest : public testing::DeviceSessionsTest {};
LETHE_ON_EVERY_DEVICE(DeviceEngineTest);

void RunThreads(const BackedModel& backed, int num_threads,
                const std::function<void(const ModelState&, absl::Span<const int32_t>)>& check) {
  std::vector<std::unique_ptr<ModelState>> states(static_cast<size_t>(num_threads));
  std::vector<std::thread> threads;
  for (int i = 0; i < num_threads; ++i) {
    threads.emplace_back([&, i] {
      const std::vector<int32_t> ids = SampleIds(40 + 9 * i, static_cast<uint64_t>(i));
      auto state = ModelState::Create(backed.model, {});
      ASSERT_OK(state);
      // A prompt, then tokens one by one.
      const auto prompt = static_cast<size_t>(7 * i + 1);
      ASSERT_OK((*state)->Evaluate(absl::MakeConstSpan(ids).first(prompt)));
      for (size_t t = prompt; t < ids.size(); ++t) {
        ASSERT_OK((*state)->Evaluate(absl::MakeConstSpan(ids).subspan(t, 1)));
      }
      states[static_cast<size_t>(i)] = *std::move(state);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < num_threads; ++i) {
    SCOPED_TRACE(i);
    check(*states[static_cast<size_t>(i)], SampleIds(40 + 9 * i, static_cast<uint64_t>(i)));
  }
  EXPECT_EQ(backed.engine->counters().slots_in_use, num_threads);
  states.clear();
  EXPECT_EQ(backed.engine->counters().slots_in_use, 0);
}

TEST_P(DeviceEngineTest, SessionsOfManyThreadsEndAsEachAlone) {
  for (const std::shared_ptr<const Model>& model : {RandomModel(3), testing::SmallModel()}) {
    SCOPED_TRACE(model->config().name);
    const BackedModel backed = MakeBacked(GetParam(), model, Slots(24));
    alone_ = nullptr;
    RunThreads(backed, 24, [&](const ModelState& state, absl::Span<const int32_t> ids) {
      ExpectEqual(backed, state, ids);
    });
  }
}

TEST_P(DeviceEngineTest, MoreSessionsThanSlotsMoveToTheHostAndBack) {
  const BackedModel backed = MakeBacked(GetParam(), RandomModel(4), Slots(3));
  constexpr size_t kSessions = 10;
  std::vector<std::unique_ptr<ModelState>> states;
  for (size_t i = 0; i < kSessions; ++i) {
    ASSERT_OK_AND_ASSIGN(auto state, ModelState::Create(backed.model, {}));
    states.push_back(std::move(state));
  }
  constexpr size_t kPiece = 23;
  constexpr size_t kPieces = 6;
  for (size_t piece = 0; piece < kPieces; ++piece) {
    std::vector<std::thread> threads;  // more waiting calls than slots
    for (size_t i = 0; i < kSessions; ++i) {
      threads.emplace_back([&, i] {
        const std::vector<int32_t> ids = SampleIds(kPiece * kPieces, i);
        EXPECT_OK(states[i]->Evaluate(absl::MakeConstSpan(ids).subspan(piece * kPiece, kPiece)));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const DeviceEngine::Counters counters = backed.engine->counters();
  EXPECT_EQ(counters.slots_in_use, 3);
  EXPECT_GE(counters.num_spills, static_cast<int64_t>((kSessions - 3) * kPieces / 2));
  for (size_t i = 0; i < kSessions; ++i) {
    SCOPED_TRACE(i);
    ExpectEqual(backed, *states[i], SampleIds(kPiece * kPieces, i));
  }
}

TEST_P(DeviceEngineTest, SnapshotsAndClonesAreStatesOfTheirOwn) {
  const BackedModel backed = MakeBacked(GetParam(), RandomModel(5), Slots(2));
  const std::vector<int32_t> ids = SampleIds(200, 1);
  const auto first = absl::MakeConstSpan(ids).first(128);
  ASSERT_OK_AND_ASSIGN(const auto state, ModelState::Create(backed.model, {}));
  const auto empty = state->Snapshot();
  ASSERT_OK(state->Evaluate(first));
  const auto snapshot = state->Snapshot();
  const auto clone = state->Clone();
  ASSERT_OK(state->Evaluate(absl::MakeConstSpan(ids).subspan(128)));
  ExpectEqual(backed, *clone, first);
  ASSERT_OK(clone->Evaluate(absl::MakeConstSpan(ids).first(3)));
  std::vector<int32_t> cloned(first.begin(), first.end());
  cloned.insert(cloned.end(), ids.begin(), ids.begin() + 3);
  ExpectEqual(backed, *clone, cloned);
  ExpectEqual(backed, *state, ids);
  ASSERT_OK(state->Restore(*snapshot));
  ExpectEqual(backed, *state, first);
  ASSERT_OK(state->Restore(*empty));
  EXPECT_EQ(state->num_tokens(), 0);
  ASSERT_OK(state->Evaluate(first));
  ExpectEqual(backed, *state, first);
}

TEST_P(DeviceEngineTest, SnapshotsComeBackFromTheirBytes) {
  const BackedModel backed = MakeBacked(GetParam(), testing::StreamingModel(), Slots(2));
  const std::vector<int32_t> first = SampleIds(128, 1);
  ASSERT_OK_AND_ASSIGN(const auto state, ModelState::Create(backed.model, {}));
  ASSERT_OK(state->Evaluate(first));
  const auto snapshot = state->Snapshot();
  const std::string bytes = state->WriteSnapshot(*snapshot, 0);
  ASSERT_OK_AND_ASSIGN(const auto read_state, ModelState::Create(backed.model, {}));
  ASSERT_OK_AND_ASSIGN(const auto read, read_state->ReadSnapshot(bytes));
  ASSERT_OK(read_state->Restore(*read));
  ExpectEqual(backed, *read_state, first);
  ASSERT_OK_AND_ASSIGN(const auto refusing, ModelState::Create(backed.model, {}));
  for (const size_t size : {size_t{0}, size_t{7}, size_t{40}, bytes.size() - 1}) {
    EXPECT_THAT(refusing->ReadSnapshot(bytes.substr(0, size)),
                testing::StatusIs(absl::StatusCode::kDataLoss));
  }
  // A model with support-vector memories comes back from its inputs.
  const BackedModel other = MakeBacked(GetParam(), testing::SmallModel(), Slots(2));
  ASSERT_OK_AND_ASSIGN(const auto none, ModelState::Create(other.model, {}));
  EXPECT_FALSE(none->writes_snapshots());
}

TEST_P(DeviceEngineTest, PromptsLeaveDecodersTheirTurns) {
  EngineOptions options = Slots(8);
  options.max_prompt_tokens = 64;
  const BackedModel backed = MakeBacked(GetParam(), RandomModel(6), options);
  std::vector<StepRecord> steps;  // the owner thread's until the engine is quiet
  backed.engine->ObserveSteps([&](const StepRecord& record) { steps.push_back(record); });
  std::atomic<bool> prompts_done{false};
  std::atomic<int> decoded{0};
  std::thread decoder([&] {
    auto state = ModelState::Create(backed.model, {});
    ASSERT_OK(state);
    while (!prompts_done.load()) {
      ASSERT_OK((*state)->Evaluate({3}));
      ++decoded;
    }
  });
  while (decoded.load() == 0) std::this_thread::yield();
  std::vector<std::thread> prompts;
  for (int i = 0; i < 2; ++i) {
    prompts.emplace_back([&, i] {
      auto state = ModelState::Create(backed.model, {});
      ASSERT_OK(state);
      ASSERT_OK((*state)->Evaluate(SampleIds(1'000, static_cast<uint64_t>(i))));
    });
  }
  for (std::thread& thread : prompts) thread.join();
  prompts_done.store(true);
  decoder.join();
  ASSERT_OK(backed.engine->Wipe());  // behind the last step's record
  int64_t num_prompt_tokens = 0;
  int64_t alone_in_a_row = 0;
  int64_t with_prompts = 0;
  for (const StepRecord& step : steps) {
    EXPECT_LE(step.num_prompt_tokens, 64);
    num_prompt_tokens += step.num_prompt_tokens;
    if (step.num_prompts == 0) continue;
    ++with_prompts;
    alone_in_a_row += step.num_decoders == 0 ? 1 : 0;
  }
  EXPECT_EQ(num_prompt_tokens, 2 * 1'000);
  EXPECT_GE(with_prompts, 2 * 1'000 / 64);
  // The decoder takes part unless its thread was kept from the processor.
  EXPECT_LT(alone_in_a_row, with_prompts);
  EXPECT_GT(decoded.load(), 1);
}

TEST_P(DeviceEngineTest, OneBadSessionFailsAlone) {
  // One token's embedding is beyond every norm.
  const ModelConfig config = RandomModel(7)->config();
  TensorMap tensors = SyntheticTensors(config, 7);
  Tensor& embed = tensors.at("embed.weight");
  for (int64_t i = 0; i < config.width; ++i) {
    embed.values[static_cast<size_t>(31 * config.width + i)] =
        std::numeric_limits<float>::infinity();
  }
  ASSERT_OK_AND_ASSIGN(const auto model, Model::Create(config, tensors));
  EngineOptions options = Slots(4);
  options.device = GetParam();
  ASSERT_OK_AND_ASSIGN(const auto engine, DeviceEngine::Create(model, options));
  const auto bad = engine->NewState();
  const auto good = engine->NewState();
  ASSERT_OK(engine->Evaluate(bad.get(), {1}, {}, {}));
  ASSERT_OK_AND_ASSIGN(const EngineSnapshot before, engine->Snapshot(bad.get()));
  std::thread mate([&] { EXPECT_OK(engine->Evaluate(good.get(), {1, 2, 3}, {}, {})); });
  EXPECT_THAT(engine->Evaluate(bad.get(), {1, 31, 3}, {}, {}),
              testing::StatusIs(absl::StatusCode::kInternal, "not finite"));
  mate.join();
  const absl::Status lost = engine->Evaluate(bad.get(), {1}, {}, {});
  EXPECT_EQ(lost.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ErrorInfoOf(lost).reason, "STATE_LOST");
  ASSERT_OK(engine->Restore(before, bad.get()));
  EXPECT_OK(engine->Evaluate(bad.get(), {1}, {}, {}));
  EXPECT_OK(engine->health());
}

TEST_P(DeviceEngineTest, ADeviceThatFailsIsSaidToEveryone) {
  const BackedModel backed = MakeBacked(GetParam(), RandomModel(8), Slots(4));
  const auto state = backed.engine->NewState();
  ASSERT_OK(backed.engine->Evaluate(state.get(), {1, 2}, {}, {}));
  testing::ScopedFault fault(Fault::kDeviceFails);
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      const auto own = backed.engine->NewState();
      const absl::Status status = backed.engine->Evaluate(own.get(), {1}, {}, {});
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_EQ(ErrorInfoOf(status).reason, "DEVICE_FAILED");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(backed.engine->health().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(backed.engine->Snapshot(state.get()),
              testing::StatusIs(absl::StatusCode::kUnavailable));
}

TEST_P(DeviceEngineTest, AFullDeviceRefusesANewSessionAndLosesNone) {
  const BackedModel backed = MakeBacked(GetParam(), testing::SmallModel(), Slots(2));
  ASSERT_OK_AND_ASSIGN(const auto old_state, ModelState::Create(backed.model, {}));
  const std::vector<int32_t> ids = SampleIds(70, 5);
  ASSERT_OK(old_state->Evaluate(ids));
  ASSERT_OK_AND_ASSIGN(const auto new_state, ModelState::Create(backed.model, {}));
  {
    const testing::ScopedFault fault(Fault::kDeviceFull);
    EXPECT_THAT(new_state->Evaluate(ids), testing::StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_OK(old_state->Evaluate({1}));
  }
  EXPECT_OK(backed.engine->health());
  ASSERT_OK(new_state->Evaluate(ids));
  ExpectEqual(backed, *new_state, ids);
}

TEST_P(DeviceEngineTest, OptionsOutOfRangeAreNamed) {
  EngineOptions options = Slots(0);
  options.device = GetParam();
  EXPECT_THAT(DeviceEngine::Create(RandomModel(1), options),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                "device slots: want 1 to 65536, got 0"));
  options = Slots(1);
  options.device = GetParam();
  options.max_prompt_tokens = 63;
  EXPECT_THAT(DeviceEngine::Create(RandomModel(1), options),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, "63"));
}

}  // namespace
}  // namespace lethe
