// DeviceWorld, DeviceSession: a model, a pool and a forward on a queue, and a session in them with every
// logit that it was given.
//
// Units: tokens.   Requires: as device_forward.h; failures are the test's.   Rejects: none.
// Effects: as the calls.   Numerics: none.   Threads: compatible.
#ifndef LETHE_TESTS_SERVER_DEVICE_WORLD_H_
#define LETHE_TESTS_SERVER_DEVICE_WORLD_H_

#include <algorithm>
#include <bit>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "server/device/device_forward.h"
#include "server/device/sv_session.h"
#include "tests/server/device_models.h"
#include "tests/testing/device_test.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {

inline std::vector<uint32_t> LogitBits(absl::Span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

// A device's world for one model.
struct DeviceWorld {
  std::shared_ptr<DeviceModel> model;
  std::unique_ptr<StatePool> pool;
  std::unique_ptr<DeviceForward> forward;
};

inline DeviceWorld MakeDeviceWorld(Queue* queue, const std::shared_ptr<const Model>& model,
                                   int32_t num_slots, const ForwardLimits& limits) {
  DeviceWorld world;
  auto device_model = DeviceModel::Create(queue, model);
  EXPECT_OK(device_model);
  world.model = *std::move(device_model);
  auto pool = StatePool::Create(world.model.get(), num_slots);
  EXPECT_OK(pool);
  world.pool = *std::move(pool);
  auto forward = DeviceForward::Create(world.model.get(), world.pool.get(), limits);
  EXPECT_OK(forward);
  world.forward = *std::move(forward);
  return world;
}

// A session of a world, and what it has answered.
struct DeviceSession {
  int32_t slot = 0;
  std::unique_ptr<SvSession> sv;
  std::vector<int32_t> ids;
  size_t done = 0;
  std::vector<float> logits;  // of every token that it took
};

inline DeviceSession NewSession(DeviceWorld* world, int64_t count, uint64_t seed) {
  DeviceSession session;
  const auto slot = world->pool->Allocate();
  EXPECT_OK(slot);
  session.slot = *slot;
  session.ids = SampleIds(count, seed);
  auto sv = SvSession::Create(world->model.get(), {world->model, &world->model->model().config()});
  EXPECT_OK(sv);
  session.sv = *std::move(sv);
  return session;
}

inline size_t VocabSize(const DeviceWorld& world) {
  return static_cast<size_t>(world.model->model().config().vocab_size);
}

// The next `counts[i]` tokens of every session in one call.
inline void Step(DeviceWorld* world, absl::Span<DeviceSession* const> sessions,
                 const std::vector<size_t>& counts) {
  std::vector<ForwardSequence> sequences;
  for (size_t i = 0; i < sessions.size(); ++i) {
    DeviceSession& session = *sessions[i];
    const size_t before = session.logits.size();
    session.logits.resize(before + counts[i] * VocabSize(*world));
    ForwardSequence sequence;
    sequence.slot = session.slot;
    sequence.sv = session.sv.get();
    sequence.rank = static_cast<int64_t>(session.done);
    sequence.vocab_ids = absl::MakeConstSpan(session.ids).subspan(session.done, counts[i]);
    sequence.all_logits = session.logits.data() + before;
    sequences.push_back(sequence);
    session.done += counts[i];
  }
  const auto statuses = world->forward->Evaluate(sequences);
  ASSERT_OK(statuses);
  for (const absl::Status& status : *statuses) ASSERT_OK(status);
}

// Random mates, random cuts, until every session has taken its tokens.
inline void RunToEnd(DeviceWorld* world, std::vector<DeviceSession>* sessions, uint64_t seed,
                     size_t longest) {
  std::mt19937_64 random(seed);
  while (true) {
    std::vector<DeviceSession*> left;
    for (DeviceSession& session : *sessions) {
      if (session.done < session.ids.size()) left.push_back(&session);
    }
    if (left.empty()) return;
    std::shuffle(left.begin(), left.end(), random);
    left.resize(1 + random() % left.size());
    std::vector<size_t> counts;
    for (const DeviceSession* session : left) {
      const size_t most = random() % 3 == 0 ? 1 : longest;
      counts.push_back(std::min(session->ids.size() - session->done, 1 + random() % most));
    }
    Step(world, left, counts);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

inline std::vector<audit::StatePart> PartsOf(const DeviceWorld& world,
                                             const DeviceSession& session) {
  audit::StateParts parts;
  EXPECT_OK(session.sv->Sync());
  EXPECT_OK(world.pool->AppendDigestParts(session.slot, static_cast<int64_t>(session.done), &parts,
                                          session.sv.get()));
  return parts.parts();
}

}  // namespace lethe::testing

#endif  // LETHE_TESTS_SERVER_DEVICE_WORLD_H_
