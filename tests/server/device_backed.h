// BackedModel, DeviceSessionsTest: a model whose sessions compute on an engine, and a fixture that compares them with sessions that were
// alone: the CPU's, whose bits the host queue has, or on a GPU those of an engine that has one at a time.
//
// Units: tokens.   Requires: failures are the test's.   Rejects: none.   Effects: none.   Numerics: none.   Threads: compatible.
#ifndef LETHE_TESTS_SERVER_DEVICE_BACKED_H_
#define LETHE_TESTS_SERVER_DEVICE_BACKED_H_

#include <memory>
#include <utility>
#include <vector>

#include "server/device/device_model_state.h"
#include "server/model/cpu_model_state.h"
#include "tests/server/device_world.h"

namespace lethe::testing {

// A model with a backend; both end with it.
struct BackedModel {
  std::shared_ptr<const Model> model;
  std::shared_ptr<DeviceEngine> engine;
  std::shared_ptr<DeviceBackend> backend;
};

inline BackedModel MakeBacked(DeviceKind device, std::shared_ptr<const Model> model,
                              const EngineOptions& wanted) {
  BackedModel backed;
  backed.model = std::move(model);
  EngineOptions options = wanted;
  options.device = device;
  auto engine = DeviceEngine::Create(backed.model, options);
  EXPECT_OK(engine);
  backed.engine = *std::move(engine);
  const Numerics numerics =
      device == DeviceKind::kCpu ? CpuNumerics() : Numerics{NumericsId(), "cuda"};
  backed.backend = std::make_shared<DeviceBackend>(backed.engine, numerics);
  backed.model->AttachBackend(backed.backend);
  return backed;
}

inline EngineOptions Slots(int32_t num_slots, int64_t max_batch = 64) {
  EngineOptions options;
  options.num_slots = num_slots;
  options.max_batch = max_batch;
  return options;
}

inline std::vector<audit::StatePart> PartsOfState(const ModelState& state) {
  audit::StateParts parts;
  state.AppendDigestParts(&parts);
  return parts.parts();
}

class DeviceSessionsTest : public DeviceTest {
 protected:
  // A state that took the same tokens in one call, elsewhere.
  std::unique_ptr<ModelState> Alone(const BackedModel& backed, absl::Span<const int32_t> ids) {
    std::unique_ptr<ModelState> state;
    if (GetParam() == DeviceKind::kCpu) {
      auto cpu = CpuModelState::Create(backed.model, {});
      EXPECT_OK(cpu);
      state = *std::move(cpu);
    } else {
      if (alone_ == nullptr) {
        EngineOptions options = Slots(1, 1);
        options.device = GetParam();
        alone_ = DeviceEngine::Create(backed.model, options).value();
      }
      state = DeviceModelState::Create(alone_, backed.model, {}).value();
    }
    EXPECT_OK(state->Evaluate(ids));
    return state;
  }
  void ExpectEqual(const BackedModel& backed, const ModelState& state,
                   absl::Span<const int32_t> ids) {
    const std::unique_ptr<ModelState> alone = Alone(backed, ids);
    EXPECT_EQ(audit::ExplainDifference(PartsOfState(state), PartsOfState(*alone)), "");
    std::vector<float> ours(32);
    std::vector<float> theirs(32);
    EXPECT_OK(state.Logits(absl::MakeSpan(ours)));
    EXPECT_OK(alone->Logits(absl::MakeSpan(theirs)));
    EXPECT_EQ(LogitBits(ours), LogitBits(theirs));
  }

  std::shared_ptr<DeviceEngine> alone_;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_SERVER_DEVICE_BACKED_H_
