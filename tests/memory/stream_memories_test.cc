// Goal: every streaming memory is a fold: its reads, its canonical state and its future are, bit
// for bit, a function of the token sequence, whatever the cut into calls of Step and Write and
// whatever snapshots, restores and clones came between.
// Method: each kind against a fresh memory that was given the same tokens one by one.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <typeinfo>

#include "gtest/gtest.h"

#include "tests/kernels/stream_inputs.h"
#include "tests/memory/stream_cases.h"
#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using testing::AllStreamCases;
using testing::CanonicalBytes;
using testing::RandomSource;
using testing::StatusIs;
using testing::StepThrough;
using testing::StreamCase;
using testing::StreamTokens;
using testing::WriteAndStepThrough;

class StreamMemoriesTest : public ::testing::TestWithParam<StreamCase> {
 protected:
  const StreamCase& stream() const { return GetParam(); }

  std::unique_ptr<Memory> FreshAfter(const StreamTokens& tokens, int64_t count) const {
    std::unique_ptr<Memory> memory = stream().create();
    StepThrough(stream(), tokens, 0, count, {1}, memory.get());
    return memory;
  }

  // The rest of the tokens gives both memories the same reads and leaves the same state.
  void ExpectSameNowAndLater(const StreamTokens& tokens, int64_t first, Memory* got,
                             Memory* want) const {
    EXPECT_EQ(got->num_tokens(), want->num_tokens());
    EXPECT_EQ(CanonicalBytes(*got), CanonicalBytes(*want));
    const std::vector<int64_t> cuts = {33, 1, 90};
    EXPECT_EQ(StepThrough(stream(), tokens, first, tokens.count(), cuts, got),
              StepThrough(stream(), tokens, first, tokens.count(), {1}, want));
    EXPECT_EQ(CanonicalBytes(*got), CanonicalBytes(*want));
  }
};

TEST_P(StreamMemoriesTest, BitsDoNotDependOnTheCut) {
  const StreamTokens tokens(stream(), 331, 1);
  std::unique_ptr<Memory> one_by_one = stream().create();
  const std::vector<float> want =
      StepThrough(stream(), tokens, 0, tokens.count(), {1}, one_by_one.get());
  std::vector<std::vector<int64_t>> all_cuts = {{2}, {63}, {64}, {65}, {331}};
  RandomSource random(2);
  for (int trial = 0; trial < 5; ++trial) {
    std::vector<int64_t> cuts(20);
    for (int64_t& cut : cuts) cut = random.Integer(1, 100);
    all_cuts.push_back(cuts);
  }
  for (const std::vector<int64_t>& cuts : all_cuts) {
    std::unique_ptr<Memory> memory = stream().create();
    EXPECT_EQ(StepThrough(stream(), tokens, 0, tokens.count(), cuts, memory.get()), want);
    EXPECT_EQ(CanonicalBytes(*memory), CanonicalBytes(*one_by_one));
    EXPECT_EQ(memory->num_tokens(), tokens.count());
  }
}

// 20 tokens are a nudge of VLA, 64 a chunk of OVQ: the cuts end before, on and after both.
TEST_P(StreamMemoriesTest, WriteLeavesTheStateThatStepLeaves) {
  const StreamTokens tokens(stream(), 331, 11);
  std::vector<std::vector<int64_t>> all_cuts = {{331},   {64},    {1},         {63, 1},
                                                {19, 2}, {65, 7}, {128, 20, 3}};
  RandomSource random(12);
  for (int trial = 0; trial < 5; ++trial) {
    std::vector<int64_t> cuts(20);
    for (int64_t& cut : cuts) cut = random.Integer(1, 100);
    all_cuts.push_back(cuts);
  }
  for (const std::vector<int64_t>& cuts : all_cuts) {
    for (int64_t rank : {1, 63, 64, 65, 200, 256, 331}) {
      std::unique_ptr<Memory> memory = stream().create();
      WriteAndStepThrough(stream(), tokens, 0, rank, cuts, memory.get());
      std::unique_ptr<Memory> fresh = FreshAfter(tokens, rank);
      ExpectSameNowAndLater(tokens, rank, memory.get(), fresh.get());
    }
  }
}

TEST_P(StreamMemoriesTest, WriteAfterARestoreEqualsAFreshMemory) {
  const StreamTokens tokens(stream(), 300, 13);
  const StreamTokens others(stream(), 300, 14);
  for (int64_t rank : {0, 19, 63, 64, 100, 128}) {
    std::unique_ptr<Memory> memory = stream().create();
    WriteAndStepThrough(stream(), tokens, 0, rank, {64, 5}, memory.get());
    const std::unique_ptr<MemorySnapshot> snapshot = memory->Snapshot();
    WriteAndStepThrough(stream(), others, 0, 170, {50}, memory.get());
    ASSERT_OK(memory->Restore(*snapshot));
    std::unique_ptr<Memory> clone = memory->Clone();
    for (Memory* each : {memory.get(), clone.get()}) {
      WriteAndStepThrough(stream(), tokens, rank, 220, {64, 33}, each);
      std::unique_ptr<Memory> fresh = FreshAfter(tokens, 220);
      ExpectSameNowAndLater(tokens, 220, each, fresh.get());
    }
  }
}

// Overflow may show only in the read after it.
TEST_P(StreamMemoriesTest, HugeWritesShowInTheNextReadOrStayFinite) {
  for (bool scales_keys : {false, true}) {
    StreamTokens huge(stream(), 200, 15);
    for (float& element : scales_keys ? huge.k : huge.v) element *= 1e38f / 8.0f;
    std::unique_ptr<Memory> written = stream().create();
    std::unique_ptr<Memory> stepped = stream().create();
    const std::unique_ptr<MemorySnapshot> start = written->Snapshot();
    std::vector<float> out(static_cast<size_t>(199 * stream().num_heads * stream().value_dim));
    EXPECT_OK(written->Write(huge.Slice(0, 199), 199));
    stepped->Step(huge.Slice(0, 199), 199, absl::MakeSpan(out)).IgnoreError();
    const auto last = absl::MakeSpan(out).first(out.size() / 199);
    const absl::Status status = written->Step(huge.Slice(199, 1), 1, last);
    EXPECT_EQ(status, stepped->Step(huge.Slice(199, 1), 1, last));
    EXPECT_TRUE(!status.ok() || std::isfinite(testing::MaxAbs(last)));
    ASSERT_OK(written->Restore(*start));
    EXPECT_EQ(CanonicalBytes(*written), CanonicalBytes(*stream().create()));
  }
}

TEST_P(StreamMemoriesTest, RestoreEqualsAFreshMemory) {
  const StreamTokens tokens(stream(), 300, 3);
  const StreamTokens others(stream(), 300, 4);
  for (int64_t rank : {0, 1, 19, 20, 63, 64, 65, 128, 200}) {
    std::unique_ptr<Memory> memory = FreshAfter(tokens, rank);
    const std::unique_ptr<MemorySnapshot> snapshot = memory->Snapshot();
    EXPECT_EQ(snapshot->num_tokens(), rank);
    EXPECT_LE(snapshot->state_bytes(), memory->state_bytes());
    // Twice, because the first restore must leave the snapshot as it was.
    for (int64_t detour : {77, 170}) {
      StepThrough(stream(), others, 0, detour, {50}, memory.get());
      ASSERT_OK(memory->Restore(*snapshot));
      std::unique_ptr<Memory> fresh = FreshAfter(tokens, rank);
      ExpectSameNowAndLater(tokens, rank, memory.get(), fresh.get());
    }
  }
}

TEST_P(StreamMemoriesTest, ReplayAfterARemovalEqualsTheRetainedHistory) {
  const StreamTokens tokens(stream(), 300, 5);
  for (const auto& [first, count] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {70, 1}, {70, 7}, {127, 2}, {128, 64}}) {
    std::unique_ptr<Memory> memory = stream().create();
    const int64_t boundary = first / kChunkTokens * kChunkTokens;
    StepThrough(stream(), tokens, 0, boundary, {64}, memory.get());
    const std::unique_ptr<MemorySnapshot> snapshot = memory->Snapshot();
    StepThrough(stream(), tokens, boundary, tokens.count(), {64}, memory.get());
    const StreamTokens retained = tokens.Without(first, count);
    ASSERT_OK(memory->Restore(*snapshot));
    std::unique_ptr<Memory> fresh = FreshAfter(retained, boundary);
    ExpectSameNowAndLater(retained, boundary, memory.get(), fresh.get());
  }
}

TEST_P(StreamMemoriesTest, CloneIsEqualAndIndependent) {
  const StreamTokens tokens(stream(), 300, 6);
  for (int64_t rank : {0, 100, 128}) {
    std::unique_ptr<Memory> memory = FreshAfter(tokens, rank);
    const std::unique_ptr<MemorySnapshot> snapshot = memory->Snapshot();
    std::unique_ptr<Memory> clone = memory->Clone();
    StepThrough(stream(), StreamTokens(stream(), 90, 7), 0, 90, {90}, memory.get());
    std::unique_ptr<Memory> fresh = FreshAfter(tokens, rank);
    ExpectSameNowAndLater(tokens, rank, clone.get(), fresh.get());
    // A clone accepts the original's snapshots.
    ASSERT_OK(clone->Restore(*snapshot));
    EXPECT_EQ(CanonicalBytes(*clone), CanonicalBytes(*FreshAfter(tokens, rank)));
  }
}

TEST_P(StreamMemoriesTest, EveryTokenReachesTheCanonicalState) {
  const StreamTokens tokens(stream(), 150, 8);
  std::string last = CanonicalBytes(*stream().create());
  std::unique_ptr<Memory> memory = stream().create();
  for (int64_t t = 0; t < tokens.count(); ++t) {
    StepThrough(stream(), tokens, t, t + 1, {1}, memory.get());
    const std::string bytes = CanonicalBytes(*memory);
    EXPECT_NE(bytes, last);
    last = bytes;
  }
  StreamTokens changed = tokens;
  changed.v[0] += 1.0f;
  EXPECT_NE(CanonicalBytes(*FreshAfter(changed, 150)), last);
}

TEST_P(StreamMemoriesTest, ZeroAndRepeatedTokensStayFiniteAndFoldAlike) {
  StreamTokens tokens(stream(), 200, 9);
  for (std::vector<float>* x : {&tokens.q, &tokens.k, &tokens.v, &tokens.write_direction}) {
    const auto per_token = static_cast<int64_t>(x->size()) / tokens.count();
    std::fill(x->begin(), x->begin() + 70 * per_token, 0.0f);
    for (int64_t t = 71; t < 200; ++t) {
      std::copy_n(x->begin() + 70 * per_token, per_token, x->begin() + t * per_token);
    }
  }
  std::unique_ptr<Memory> memory = stream().create();
  std::unique_ptr<Memory> other = stream().create();
  const std::vector<float> reads =
      StepThrough(stream(), tokens, 0, tokens.count(), {1}, memory.get());
  EXPECT_EQ(StepThrough(stream(), tokens, 0, tokens.count(), {45, 64}, other.get()), reads);
  EXPECT_TRUE(std::isfinite(testing::MaxAbs(reads)));
  EXPECT_EQ(CanonicalBytes(*memory), CanonicalBytes(*other));
}

// Finite or reported, and a restore heals.
TEST_P(StreamMemoriesTest, HugeInputsStayFiniteOrAreReported) {
  const StreamTokens tokens(stream(), 200, 10);
  for (float scale : {1e10f, 1e20f, 1e30f, std::numeric_limits<float>::max()}) {
    for (bool scales_keys : {false, true}) {
      StreamTokens huge = tokens;
      for (float& element : scales_keys ? huge.k : huge.v) element *= scale / 8.0f;
      std::unique_ptr<Memory> memory = FreshAfter(tokens, 64);
      const std::unique_ptr<MemorySnapshot> snapshot = memory->Snapshot();
      absl::Status status;
      std::vector<float> out(static_cast<size_t>(8 * stream().num_heads * stream().value_dim));
      for (int64_t t = 0; t < 200 && status.ok(); t += 8) {
        status = memory->Step(huge.Slice(t, 8), 8, absl::MakeSpan(out));
        EXPECT_TRUE(!status.ok() || std::isfinite(testing::MaxAbs(out))) << scale;
      }
      if (!status.ok()) {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kOutOfRange, "beyond f32"));
      }
      ASSERT_OK(memory->Restore(*snapshot));
      EXPECT_EQ(CanonicalBytes(*memory), CanonicalBytes(*FreshAfter(tokens, 64)));
    }
  }
}

TEST_P(StreamMemoriesTest, RestoreRejectsAnotherKindsSnapshot) {
  for (const StreamCase& other : AllStreamCases()) {
    const std::unique_ptr<Memory> memory = stream().create();
    const std::unique_ptr<Memory> another = other.create();
    const Memory& left = *memory;
    const Memory& right = *another;
    if (typeid(left) == typeid(right)) continue;
    EXPECT_THAT(memory->Restore(*another->Snapshot()),
                StatusIs(absl::StatusCode::kInvalidArgument, "snapshot"));
  }
  EXPECT_OK(stream().create()->Restore(*stream().create()->Snapshot()));
}

// LETHE_STREAM_LIBRARIES names the libraries behind these memories; their oracles (*_ref.cc) may
// use libm.
TEST(StreamLibrariesTest, ImportNoLibm) {
  std::FILE* pipe = popen("nm -A -u " LETHE_STREAM_LIBRARIES, "r");
  ASSERT_NE(pipe, nullptr);
  size_t num_lines = 0;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    ++num_lines;
    const std::string text = line;
    if (text.find("_ref.cc.o") != std::string::npos) continue;
    const std::string symbol = text.substr(text.rfind(' ') + 1);
    for (const char* name : {"exp", "expf", "log", "logf", "log2f", "pow", "powf", "tanhf", "fma",
                             "fmaf", "sqrt", "sqrtf"}) {
      EXPECT_NE(symbol, std::string(name) + "\n") << text;
    }
  }
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_GT(num_lines, 0u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StreamMemoriesTest, ::testing::ValuesIn(AllStreamCases()),
                         [](const ::testing::TestParamInfo<StreamCase>& param) {
                           return param.param.name;
                         });

}  // namespace
}  // namespace lethe
