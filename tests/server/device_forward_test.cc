// Goal: on the host queue a session in a batch has the logits and the digest parts of ModelState, bit for
// bit; on every device its bits do not depend on mates, cuts and slots; one bad session fails alone.
// Method: random models of every layer and memory kind, random histories cut into random calls of random
// mates; the single session of ModelState, or of a DeviceForward of its own, beside it.
#include "server/device/device_forward.h"

#include <algorithm>
#include <limits>

#include "server/model/model_state.h"
#include "server/model/reference.h"
#include "server/model/synthetic_model.h"
#include "tests/server/device_world.h"
#include "tests/testing/long_run.h"

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
using testing::VocabSize;

class DeviceForwardTest : public testing::DeviceTest {};
LETHE_ON_EVERY_DEVICE(DeviceForwardTest);

TEST_P(DeviceForwardTest, BatchedSessionsHaveTheBitsOfModelState) {
  if (GetParam() == DeviceKind::kCuda)
    GTEST_SKIP() << "skipped because a GPU's reads have bits of their own";
  for (uint64_t seed = 1; seed <= (testing::IsLongTest() ? 40u : 6u); ++seed) {
    SCOPED_TRACE(seed);
    const auto model = RandomModel(seed);
    DeviceWorld world = MakeDeviceWorld(queue(), model, 6, {300, 5});
    std::vector<DeviceSession> sessions;
    for (uint64_t i = 0; i < 5; ++i) {
      sessions.push_back(
          NewSession(&world, static_cast<int64_t>(1 + (seed * 61 + i * 83) % 270), seed * 10 + i));
    }
    RunToEnd(&world, &sessions, seed, 60);
    for (const DeviceSession& session : sessions) {
      ASSERT_OK_AND_ASSIGN(const auto state, ModelState::Create(model, {}));
      std::vector<float> logits(session.logits.size());
      ASSERT_OK(state->EvaluateWithLogits(session.ids, absl::MakeSpan(logits)));
      EXPECT_EQ(LogitBits(session.logits), LogitBits(logits));
      audit::StateParts parts;
      state->AppendDigestParts(&parts);
      const std::vector<audit::StatePart> want(parts.parts().begin() + 2,
                                               parts.parts().end());  // after "options", "tokens"
      EXPECT_EQ(audit::ExplainDifference(PartsOf(world, session), want), "");
    }
  }
}

TEST_P(DeviceForwardTest, BitsDoNotDependOnMatesCutsAndSlots) {
  const int32_t num_sessions = GetParam() == DeviceKind::kCuda ? 256 : 12;
  for (uint64_t seed = 21; seed <= 23; ++seed) {
    SCOPED_TRACE(seed);
    const auto model = RandomModel(seed);
    DeviceWorld world = MakeDeviceWorld(queue(), model, num_sessions, {4096, num_sessions});
    DeviceWorld alone = MakeDeviceWorld(queue(), model, 3, {200, 1});
    std::vector<DeviceSession> sessions;
    for (int32_t i = 0; i < num_sessions; ++i) {
      const auto place = static_cast<uint64_t>(i);
      sessions.push_back(NewSession(&world, static_cast<int64_t>(100 + (place * 37) % 90), place));
    }
    RunToEnd(&world, &sessions, seed, 15);
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < sessions.size(); i += sessions.size() / 6) {
      DeviceSession single = NewSession(&alone, std::ssize(sessions[i].ids), i);
      DeviceSession* const only = &single;
      Step(&alone, {&only, 1}, {i % 2 == 0 ? single.ids.size() : 65});
      while (single.done < single.ids.size()) Step(&alone, {&only, 1}, {1});
      EXPECT_EQ(LogitBits(single.logits), LogitBits(sessions[i].logits)) << i;
      EXPECT_EQ(audit::ExplainDifference(PartsOf(alone, single), PartsOf(world, sessions[i])), "");
      ASSERT_OK(alone.pool->Free(single.slot));
    }
  }
}

TEST_P(DeviceForwardTest, LogitsAreWithinToleranceOfTheDoubleReference) {
  constexpr double kTolerance = 2e-3;  // of the largest logit; a GPU multiplies parts of numbers
  for (uint64_t seed = 31; seed <= 33; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_OK_AND_ASSIGN(const ModelConfig config,
                         ParseModelConfig(testing::RandomConfig(seed).Json()));
    const TensorMap tensors = SyntheticTensors(config, seed);
    ASSERT_OK_AND_ASSIGN(const auto model, Model::Create(config, tensors));
    DeviceWorld world = MakeDeviceWorld(queue(), model, 1, {64, 1});
    // Below one chunk of OVQ, whose discrete choices may fall otherwise near a tie.
    DeviceSession session = NewSession(&world, 60, seed);
    DeviceSession* const only = &session;
    Step(&world, {&only, 1}, {60});
    if (HasFatalFailure()) return;
    ASSERT_OK_AND_ASSIGN(const ReferenceOutput want,
                         ReferenceForward(config, tensors, session.ids));
    double worst = 0.0;
    double largest = 0.0;
    for (size_t t = 0; t < want.logits.size(); ++t) {
      for (size_t n = 0; n < want.logits[t].size(); ++n) {
        const auto got = static_cast<double>(session.logits[t * want.logits[t].size() + n]);
        worst = std::max(worst, std::abs(got - want.logits[t][n]));
        largest = std::max(largest, std::abs(want.logits[t][n]));
      }
    }
    EXPECT_LE(worst, kTolerance * largest);
    RecordProperty("worst", std::to_string(worst / largest));
  }
}

TEST_P(DeviceForwardTest, LastLogitsAreThoseOfTheLastToken) {
  const auto model = RandomModel(41);
  DeviceWorld world = MakeDeviceWorld(queue(), model, 2, {64, 2});
  DeviceSession all = NewSession(&world, 30, 1);
  DeviceSession* const only = &all;
  Step(&world, {&only, 1}, {30});
  const DeviceSession last = NewSession(&world, 30, 1);
  std::vector<float> logits(VocabSize(world));
  std::vector<float> both(2 * VocabSize(world));
  ForwardSequence head;
  head.slot = last.slot;
  head.sv = last.sv.get();
  head.vocab_ids = absl::MakeConstSpan(last.ids).subspan(0, 28);
  ASSERT_OK(world.forward->Evaluate({&head, 1}));  // nobody asks for logits
  ForwardSequence tail;
  tail.slot = last.slot;
  tail.sv = last.sv.get();
  tail.rank = 28;
  tail.vocab_ids = absl::MakeConstSpan(last.ids).subspan(28);
  tail.logits = logits.data();
  tail.all_logits = both.data();
  ASSERT_OK(world.forward->Evaluate({&tail, 1}));
  const auto want = absl::MakeConstSpan(all.logits).last(both.size());
  EXPECT_EQ(LogitBits(both), LogitBits(want));
  EXPECT_EQ(LogitBits(logits), LogitBits(want.last(logits.size())));
}

TEST_P(DeviceForwardTest, DecodeStepsHaveTheBitsOfOnePass) {
  const bool is_cuda = GetParam() == DeviceKind::kCuda;
  const int32_t num_sessions = is_cuda ? 70 : 5;
  for (uint64_t seed = 81; seed <= 82; ++seed) {
    SCOPED_TRACE(seed);
    const auto model = RandomModel(seed);
    DeviceWorld world = MakeDeviceWorld(queue(), model, num_sessions, {4096, num_sessions});
    DeviceWorld whole = MakeDeviceWorld(queue(), model, num_sessions, {16384, num_sessions, false});
    std::vector<DeviceSession> sessions;
    std::vector<DeviceSession> at_once;
    std::vector<DeviceSession*> pointers;
    std::vector<size_t> counts;
    for (int32_t i = 0; i < num_sessions; ++i) {
      const auto place = static_cast<uint64_t>(i);
      const auto count = static_cast<int64_t>(66 + place % 17);  // the batch shrinks at the end
      sessions.push_back(NewSession(&world, count, place));
      at_once.push_back(NewSession(&whole, count, place));
    }
    for (DeviceSession& session : at_once) {
      pointers.push_back(&session);
      counts.push_back(session.ids.size());
    }
    Step(&whole, pointers, counts);
    RunToEnd(&world, &sessions, 0, 1);
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < sessions.size(); ++i) {
      EXPECT_EQ(LogitBits(sessions[i].logits), LogitBits(at_once[i].logits)) << i;
      EXPECT_EQ(audit::ExplainDifference(PartsOf(world, sessions[i]), PartsOf(whole, at_once[i])),
                "");
    }
    EXPECT_EQ(world.forward->num_graphs() > 0, is_cuda);
    EXPECT_EQ(whole.forward->num_graphs(), 0u);
  }
}

TEST_P(DeviceForwardTest, WipingBetweenCallsChangesNoBit) {
  const auto model = RandomModel(91);
  DeviceWorld world = MakeDeviceWorld(queue(), model, 2, {128, 2});
  DeviceSession wiped = NewSession(&world, 100, 1);
  DeviceSession plain = NewSession(&world, 100, 1);
  for (DeviceSession* session : {&wiped, &plain}) {
    for (int i = 0; i < 10; ++i) {
      Step(&world, {&session, 1}, {10});
      if (session != &wiped) continue;
      ASSERT_OK(world.forward->Wipe());
    }
  }
  EXPECT_EQ(LogitBits(wiped.logits), LogitBits(plain.logits));
}

TEST_P(DeviceForwardTest, ABadSessionDoesNotFailItsMates) {
  ASSERT_OK_AND_ASSIGN(const ModelConfig config,
                       ParseModelConfig(testing::RandomConfig(51).Json()));
  TensorMap tensors = SyntheticTensors(config, 51);
  // Token 7's embedding is beyond every norm.
  std::vector<float>& embed = tensors.at("embed.weight").values;
  std::fill_n(embed.begin() + 7 * config.width, config.width,
              std::numeric_limits<float>::infinity());
  ASSERT_OK_AND_ASSIGN(const auto model, Model::Create(config, tensors));
  DeviceWorld world = MakeDeviceWorld(queue(), model, 3, {256, 3});
  DeviceWorld alone = MakeDeviceWorld(queue(), model, 2, {256, 2});
  std::vector<DeviceSession> sessions;
  std::vector<std::vector<float>> logits(3, std::vector<float>(VocabSize(world), -7.0f));
  std::vector<ForwardSequence> calls(3);
  for (uint64_t i = 0; i < 3; ++i) {
    sessions.push_back(NewSession(&world, 70, i));
    std::replace(sessions[i].ids.begin(), sessions[i].ids.end(), 7, 8);
  }
  sessions[1].ids[40] = 7;
  for (size_t i = 0; i < 3; ++i) {
    calls[i].slot = sessions[i].slot;
    calls[i].sv = sessions[i].sv.get();
    calls[i].vocab_ids = sessions[i].ids;
    calls[i].logits = logits[i].data();
    sessions[i].done = sessions[i].ids.size();
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<absl::Status> statuses, world.forward->Evaluate(calls));
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kInternal);
  EXPECT_EQ(logits[1], std::vector<float>(VocabSize(world), -7.0f));
  for (const size_t i : {size_t{0}, size_t{2}}) {
    EXPECT_OK(statuses[i]);
    DeviceSession single = NewSession(&alone, 70, i);
    single.ids = sessions[i].ids;
    DeviceSession* const only = &single;
    Step(&alone, {&only, 1}, {70});
    EXPECT_EQ(LogitBits(logits[i]),
              LogitBits(absl::MakeConstSpan(single.logits).last(logits[i].size())));
    EXPECT_EQ(audit::ExplainDifference(PartsOf(alone, single), PartsOf(world, sessions[i])), "");
  }
  // The bad slot is of use again once it is freed.
  ASSERT_OK(world.pool->Free(sessions[1].slot));
  DeviceSession again = NewSession(&world, 70, 2);
  again.ids = sessions[2].ids;
  DeviceSession* const only = &again;
  Step(&world, {&only, 1}, {70});
  EXPECT_EQ(audit::ExplainDifference(PartsOf(world, again), PartsOf(world, sessions[2])), "");
}

TEST_P(DeviceForwardTest, LimitsAreChecked) {
  const auto model = RandomModel(61);
  DeviceWorld world = MakeDeviceWorld(queue(), model, 2, {8, 1});
  DeviceSession a = NewSession(&world, 9, 1);
  ForwardSequence call;
  call.slot = a.slot;
  call.sv = a.sv.get();
  call.vocab_ids = a.ids;
  EXPECT_EQ(world.forward->Evaluate({&call, 1}).status().message(),
            "tokens of a call must be in 1 … 8, got 9");
  const auto forward = DeviceForward::Create(world.model.get(), world.pool.get(), {0, 1});
  EXPECT_EQ(forward.status().message(), "max_tokens must be in 1 … 65536, got 0");
}

}  // namespace
}  // namespace lethe
