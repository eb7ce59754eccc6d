// Goal: WindowMemory keeps the contract of Memory: a fold whose outputs, state, snapshots and
// clones are a function of the tokens alone, read or only written; Create refuses what
// docs/model-format.md does.
// Method: random cuts against single steps; restore and replay against a run that was never
// interrupted.
#include "memory/window/window_memory.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::StatusIs;

constexpr WindowAttentionShape kShape = {2, 16, 8, 24};
constexpr int64_t kCount = 150;

class WindowMemoryTest : public ::testing::Test {
 protected:
  WindowMemoryTest() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    q_.resize(kCount * 32);
    k_.resize(kCount * 32);
    v_.resize(kCount * 16);
    for (std::vector<float>* values : {&q_, &k_, &v_}) {
      for (float& value : *values) value = normal(random);
    }
  }

  static std::unique_ptr<WindowMemory> Create(const WindowAttentionShape& shape = kShape) {
    return WindowMemory::Create(shape, {0.05f, 0.2f}).value();
  }

  std::vector<float> Run(int64_t begin, int64_t end, Memory* memory) const {
    MemoryInputs inputs;
    const auto at = [&](const std::vector<float>& values, int64_t row) {
      return absl::MakeConstSpan(values).subspan(static_cast<size_t>(begin * row),
                                                 static_cast<size_t>((end - begin) * row));
    };
    inputs.q = at(q_, 32);
    inputs.k = at(k_, 32);
    inputs.v = at(v_, 16);
    std::vector<float> out(static_cast<size_t>((end - begin) * 16));
    EXPECT_OK(memory->Step(inputs, end - begin, absl::MakeSpan(out)));
    return out;
  }

  void Write(int64_t begin, int64_t end, Memory* memory) const {
    MemoryInputs inputs;
    inputs.k = absl::MakeConstSpan(k_).subspan(static_cast<size_t>(begin * 32),
                                               static_cast<size_t>((end - begin) * 32));
    inputs.v = absl::MakeConstSpan(v_).subspan(static_cast<size_t>(begin * 16),
                                               static_cast<size_t>((end - begin) * 16));
    EXPECT_OK(memory->Write(inputs, end - begin));
  }

  static std::string StateBytes(const Memory& memory) {
    ByteWriter writer;
    memory.AppendCanonicalState(&writer);
    return writer.Take();
  }

  std::vector<float> q_, k_, v_;
};

TEST_F(WindowMemoryTest, SixtyFourTokensAtOnceEqualSixtyFourSteps) {
  auto at_once = Create();
  auto by_steps = Create();
  for (const int64_t begin : {int64_t{0}, kChunkTokens}) {
    const std::vector<float> all = Run(begin, begin + kChunkTokens, at_once.get());
    std::vector<float> each;
    for (int64_t t = begin; t < begin + kChunkTokens; ++t) {
      const std::vector<float> one = Run(t, t + 1, by_steps.get());
      each.insert(each.end(), one.begin(), one.end());
    }
    EXPECT_EQ(all, each);
    EXPECT_EQ(StateBytes(*at_once), StateBytes(*by_steps));
    EXPECT_EQ(at_once->num_tokens(), begin + kChunkTokens);
  }
}

TEST_F(WindowMemoryTest, WriteLeavesTheStateThatStepLeaves) {
  for (const int64_t window : {1, 2, 24, 100}) {
    const WindowAttentionShape shape = {2, 16, 8, window};
    for (const int64_t cut : {1, 5, 23, 24, 64, 110}) {
      auto written = Create(shape);
      auto stepped = Create(shape);
      for (int64_t begin = 0; begin < 110; begin += cut) {
        const int64_t end = std::min<int64_t>(begin + cut, 110);
        if (begin / cut % 3 == 2) {
          Run(begin, end, written.get());
        } else {
          Write(begin, end, written.get());
        }
        Run(begin, end, stepped.get());
        EXPECT_EQ(StateBytes(*written), StateBytes(*stepped));
      }
      EXPECT_EQ(written->num_tokens(), 110);
      const auto snapshot = written->Snapshot();
      EXPECT_EQ(Run(110, 150, written.get()), Run(110, 150, stepped.get()));
      ASSERT_OK(written->Restore(*snapshot));
      Write(110, 150, written.get());
      EXPECT_EQ(StateBytes(*written), StateBytes(*stepped));
    }
  }
}

TEST_F(WindowMemoryTest, RestoreThenOtherTokensEqualsAFreshSession) {
  auto memory = Create();
  Run(0, 70, memory.get());
  const auto snapshot = memory->Snapshot();
  EXPECT_EQ(snapshot->num_tokens(), 70);
  EXPECT_GT(snapshot->state_bytes(), 0u);
  Run(70, 100, memory.get());
  ASSERT_OK(memory->Restore(*snapshot));
  EXPECT_EQ(memory->num_tokens(), 70);
  const std::vector<float> again = Run(110, 150, memory.get());  // tokens 70 … 109 forgotten
  auto fresh = Create();
  Run(0, 70, fresh.get());
  EXPECT_EQ(again, Run(110, 150, fresh.get()));
  EXPECT_EQ(StateBytes(*memory), StateBytes(*fresh));
}

TEST_F(WindowMemoryTest, RestoreToTheStartLeavesNothing) {
  auto memory = Create();
  const auto start = memory->Snapshot();
  Run(0, 100, memory.get());
  ASSERT_OK(memory->Restore(*start));
  EXPECT_EQ(memory->num_tokens(), 0);
  EXPECT_EQ(StateBytes(*memory), StateBytes(*Create()));
  EXPECT_EQ(Run(5, 9, memory.get()), Run(5, 9, Create().get()));
}

TEST_F(WindowMemoryTest, CloneGoesItsOwnWay) {
  auto memory = Create();
  Run(0, 30, memory.get());
  const std::string before = StateBytes(*memory);
  const auto clone = memory->Clone();
  Run(30, 60, clone.get());
  EXPECT_EQ(StateBytes(*memory), before);
  EXPECT_EQ(memory->num_tokens(), 30);
  EXPECT_EQ(clone->num_tokens(), 60);
  Run(30, 60, memory.get());
  EXPECT_EQ(StateBytes(*memory), StateBytes(*clone));
  ASSERT_OK(clone->Restore(*memory->Snapshot()));
}

TEST_F(WindowMemoryTest, SnapshotOfAnotherShapeIsRefused) {
  auto memory = Create();
  Run(0, 3, memory.get());
  const std::string before = StateBytes(*memory);
  const auto other = Create(WindowAttentionShape{2, 16, 8, 25});
  EXPECT_THAT(memory->Restore(*other->Snapshot()), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(StateBytes(*memory), before);
}

TEST_F(WindowMemoryTest, CreateNamesTheKeyThatIsOutOfRange) {
  const std::vector<float> slopes = {0.1f};
  const auto refused = [&](const WindowAttentionShape& shape, const char* key) {
    EXPECT_THAT(WindowMemory::Create(shape, slopes),
                StatusIs(absl::StatusCode::kInvalidArgument, key));
  };
  refused({0, 8, 8, 1}, "heads");
  refused({65, 8, 8, 1}, "heads");
  refused({1, 12, 8, 1}, "key_dim");
  refused({1, 4104, 8, 1}, "key_dim");
  refused({1, 8, 0, 1}, "value_dim");
  refused({1, 8, 8, 0}, "window");
  refused({1, 8, 8, 1025}, "window");
  refused({2, 8, 8, 4}, "alibi_slopes");
  EXPECT_THAT(WindowMemory::Create({1, 8, 8, 4}, {std::numeric_limits<float>::infinity()}),
              StatusIs(absl::StatusCode::kInvalidArgument, "alibi_slopes"));
  EXPECT_OK(WindowMemory::Create({1, 8, 4096, 1024}, slopes));
}

TEST_F(WindowMemoryTest, StepOfNoTokensAborts) {
  auto memory = Create();
  EXPECT_DEATH(static_cast<void>(memory->Step({}, 0, {})), "check failed");
}

}  // namespace
}  // namespace lethe
