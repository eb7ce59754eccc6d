// Goal: the support-vector groups of a session on a device are SvMemory's, bit for bit on the host queue, on any
// number of solving threads; lethe-tiny runs in batches; what a session no longer holds is not on the device.
// Method: lethe-tiny and random models, beside ModelState; the arrays behind the read kernel's pointers.
#include "server/device/sv_session.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "server/model/model_state.h"
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
using testing::RunToEnd;
using testing::Step;

class SvSessionTest : public testing::DeviceTest {};
LETHE_ON_EVERY_DEVICE(SvSessionTest);

TEST_P(SvSessionTest, LetheTinyInBatchesIsModelStates) {
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model,
                       Model::Load(std::string(LETHE_SOURCE_DIR) + "/models/lethe-tiny"));
  ForwardLimits limits{300, 3};
  limits.solver_threads = 2;
  DeviceWorld world = MakeDeviceWorld(queue(), model, 3, limits);
  std::vector<DeviceSession> sessions;
  for (uint64_t i = 0; i < 3; ++i) {
    sessions.push_back(NewSession(&world, static_cast<int64_t>(60 + 70 * i), i));
  }
  RunToEnd(&world, &sessions, 1, 90);
  if (HasFatalFailure()) return;
  for (const DeviceSession& session : sessions) {
    ASSERT_OK_AND_ASSIGN(const auto state, ModelState::Create(model, {}));
    std::vector<float> logits(session.logits.size());
    ASSERT_OK(state->EvaluateWithLogits(session.ids, absl::MakeSpan(logits)));
    if (GetParam() == DeviceKind::kCpu) {
      EXPECT_EQ(LogitBits(session.logits), LogitBits(logits));
      audit::StateParts parts;
      state->AppendDigestParts(&parts);
      const std::vector<audit::StatePart> want(parts.parts().begin() + 2, parts.parts().end());
      EXPECT_EQ(audit::ExplainDifference(PartsOf(world, session), want), "");
      continue;
    }
    float largest = 0.0f;
    float worst = 0.0f;
    for (size_t i = 0; i < logits.size(); ++i) {
      largest = std::max(largest, std::abs(logits[i]));
      worst = std::max(worst, std::abs(logits[i] - session.logits[i]));
    }
    EXPECT_LE(worst, 1e-2f * largest);
  }
}

TEST_P(SvSessionTest, TheNumberOfSolvingThreadsChangesNoBit) {
  const auto model = RandomModel(5);
  std::vector<std::vector<audit::StatePart>> parts[2];
  for (const int64_t threads : {1, 4}) {
    ForwardLimits limits{1024, 8};
    limits.solver_threads = threads;
    DeviceWorld world = MakeDeviceWorld(queue(), model, 8, limits);
    std::vector<DeviceSession> sessions;
    std::vector<DeviceSession*> pointers;
    for (uint64_t i = 0; i < 8; ++i) sessions.push_back(NewSession(&world, 128, i));
    for (DeviceSession& session : sessions) pointers.push_back(&session);
    Step(&world, pointers, std::vector<size_t>(8, 128));
    if (HasFatalFailure()) return;
    for (const DeviceSession& session : sessions) {
      parts[threads == 1 ? 0 : 1].push_back(PartsOf(world, session));
    }
  }
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(audit::ExplainDifference(parts[0][i], parts[1][i]), "") << i;
  }
}

// Every float that the device has of a session's tails and supports.
std::vector<float> DeviceFloats(Queue* queue, const SvSession& session) {
  std::vector<float> all;
  const auto take = [&](const float* from, size_t count) {
    const size_t at = all.size();
    all.resize(at + count);
    if (count > 0) {
      EXPECT_OK(queue->CopyToHost(from, count * sizeof(float), all.data() + at));
    }
  };
  for (size_t g = 0; g < session.num_groups(); ++g) {
    const GroupConfig& config = session.group(g).config();
    for (const SvReadHead& head : session.heads(g)) {
      take(head.tail_keys, static_cast<size_t>(kSvTailTokens * config.key_dim));
      take(head.tail_values, static_cast<size_t>(kSvTailTokens * config.value_dim));
      take(head.support_keys, static_cast<size_t>(head.num_distinct * config.key_dim));
      take(head.support_gates, static_cast<size_t>(head.num_support));
      take(head.support_values, static_cast<size_t>(head.num_support * config.value_dim));
    }
  }
  return all;
}

TEST_P(SvSessionTest, ARestoredSessionHasOnTheDeviceWhatItHadThen) {
  const auto model = RandomModel(5);
  DeviceWorld world = MakeDeviceWorld(queue(), model, 1, {256, 1});
  DeviceSession session = NewSession(&world, 200, 1);
  DeviceSession* const only = &session;
  Step(&world, {&only, 1}, {70});
  ASSERT_OK_AND_ASSIGN(const SvSession::Snapshot then, session.sv->TakeSnapshot());
  ASSERT_OK(session.sv->Restore(then));  // the tail's old places are zero now
  const std::vector<float> before = DeviceFloats(queue(), *session.sv);
  EXPECT_NE(before, std::vector<float>(before.size()));
  Step(&world, {&only, 1}, {130});
  EXPECT_NE(LogitBits(DeviceFloats(queue(), *session.sv)), LogitBits(before));
  ASSERT_OK(session.sv->Restore(then));
  EXPECT_EQ(session.sv->num_tokens(), 70);
  EXPECT_EQ(LogitBits(DeviceFloats(queue(), *session.sv)), LogitBits(before));
}

}  // namespace
}  // namespace lethe
