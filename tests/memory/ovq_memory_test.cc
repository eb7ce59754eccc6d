// Goal: what is OVQ's own in its memory: options, growth on the grid, compact snapshots, the mutant
// it stands for.
// Method: the slots after every token against the growth law; the mutant must change reads after a
// restore.
#include "memory/ovq/ovq_memory.h"

#include <limits>
#include <numeric>

#include "gtest/gtest.h"

#include "tests/memory/stream_cases.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using testing::CanonicalBytes;
using testing::ScopedFault;
using testing::StatusIs;
using testing::StepThrough;
using testing::StreamCase;
using testing::StreamTokens;

StreamCase Stream() {
  StreamCase stream = testing::AllStreamCases()[5];
  EXPECT_EQ(stream.name, "Ovq");
  return stream;
}

TEST(OvqMemoryTest, RejectsOptionsByName) {
  const auto status_of = [](int64_t max_slots, std::vector<float> beta) {
    return OvqMemory::Create({2, 8, 8, max_slots, std::move(beta)}).status();
  };
  EXPECT_OK(status_of(2, {1.0f, 1.0f}));
  EXPECT_OK(status_of(65536, {0.0f, -1.0f}));
  EXPECT_THAT(status_of(1, {1.0f, 1.0f}), StatusIs(absl::StatusCode::kInvalidArgument, "slots"));
  EXPECT_THAT(status_of(65537, {1.0f, 1.0f}),
              StatusIs(absl::StatusCode::kInvalidArgument, "slots"));
  EXPECT_THAT(status_of(8, {1.0f}), StatusIs(absl::StatusCode::kInvalidArgument, "beta"));
  EXPECT_THAT(status_of(8, {1.0f, std::numeric_limits<float>::infinity()}),
              StatusIs(absl::StatusCode::kInvalidArgument, "beta"));
  EXPECT_THAT(status_of(8, {1.0f, std::numeric_limits<float>::quiet_NaN()}),
              StatusIs(absl::StatusCode::kInvalidArgument, "beta"));
}

TEST(OvqMemoryTest, SlotsGrowOnTheGridByTheLawAndCountEveryMergedToken) {
  const StreamCase stream = Stream();
  const StreamTokens tokens(stream, 1000, 1);
  const auto memory = *OvqMemory::Create({2, 16, 24, 40, {1.0f, 1.0f}});
  for (int64_t t = 0; t < tokens.count(); ++t) {
    StepThrough(stream, tokens, t, t + 1, {1}, memory.get());
    const int64_t merged = (t + 1) / kChunkTokens * kChunkTokens;
    for (int64_t head : {0, 1}) {
      const OvqSlots& slots = memory->slots(head);
      EXPECT_EQ(static_cast<int64_t>(slots.counts.size()), OvqNumSlots(40, merged));
      EXPECT_EQ(std::accumulate(slots.counts.begin(), slots.counts.end(), int64_t{0}), merged);
    }
  }
}

TEST(OvqMemoryTest, SnapshotsHoldFilledSlotsAndPendingTokensOnly) {
  const StreamCase stream = Stream();
  const StreamTokens tokens(stream, 200, 2);
  const std::unique_ptr<Memory> memory = stream.create();
  EXPECT_EQ(memory->Snapshot()->state_bytes(), 0u);
  StepThrough(stream, tokens, 0, 10, {10}, memory.get());
  EXPECT_EQ(memory->Snapshot()->state_bytes(), 10u * 2 * (16 + 24) * 4);
  StepThrough(stream, tokens, 10, 128, {64}, memory.get());
  const auto num_slots = static_cast<size_t>(OvqNumSlots(40, 128));
  EXPECT_EQ(memory->Snapshot()->state_bytes(), num_slots * 2 * (16 + 24 + 2) * 4);
  EXPECT_GE(memory->state_bytes(), memory->Snapshot()->state_bytes() + 64u * 2 * (16 + 24) * 4);
}

TEST(OvqMemoryTest, CanonicalStateAtABoundaryHoldsNoPendingToken) {
  const StreamCase stream = Stream();
  const StreamTokens tokens(stream, 130, 3);
  const std::unique_ptr<Memory> memory = stream.create();
  StepThrough(stream, tokens, 0, 128, {128}, memory.get());
  const size_t at_boundary = CanonicalBytes(*memory).size();
  StepThrough(stream, tokens, 128, 129, {1}, memory.get());
  EXPECT_EQ(CanonicalBytes(*memory).size(), at_boundary + 2 * (8 + 16 * 4 + 8 + 24 * 4));
}

TEST(OvqMemoryTest, RestoreRejectsAnotherShape) {
  const auto memory = *OvqMemory::Create({1, 8, 8, 40, {1.0f}});
  const auto other = *OvqMemory::Create({1, 8, 16, 40, {1.0f}});
  const auto two_heads = *OvqMemory::Create({2, 8, 8, 40, {1.0f, 1.0f}});
  const std::vector<float> row(16);
  std::vector<float> out(16);
  ASSERT_OK(other->Step({.q = absl::MakeConstSpan(row).first(8),
                         .k = absl::MakeConstSpan(row).first(8),
                         .v = row,
                         .log_decay = {},
                         .precision = {},
                         .write_direction = {}},
                        1, absl::MakeSpan(out)));
  EXPECT_THAT(memory->Restore(*other->Snapshot()),
              StatusIs(absl::StatusCode::kInvalidArgument, "shape"));
  EXPECT_THAT(memory->Restore(*two_heads->Snapshot()),
              StatusIs(absl::StatusCode::kInvalidArgument, "shape"));
}

TEST(OvqMemoryTest, ATokenCountThatSurvivesARestoreChangesStateAndReads) {
  const StreamCase stream = Stream();
  const StreamTokens tokens(stream, 300, 4);
  const auto reads_after_forget = [&](int64_t boundary, std::string* bytes) {
    const std::unique_ptr<Memory> memory = stream.create();
    StepThrough(stream, tokens, 0, boundary, {64}, memory.get());
    const std::unique_ptr<MemorySnapshot> snapshot = memory->Snapshot();
    StepThrough(stream, tokens, boundary, 280, {64}, memory.get());
    EXPECT_OK(memory->Restore(*snapshot));
    std::vector<float> reads = StepThrough(stream, tokens, boundary, 300, {64}, memory.get());
    *bytes = CanonicalBytes(*memory);
    return reads;
  };
  for (int64_t boundary : {0, 64}) {
    const std::unique_ptr<Memory> fresh = stream.create();
    StepThrough(stream, tokens, 0, boundary, {64}, fresh.get());
    const std::vector<float> want = StepThrough(stream, tokens, boundary, 300, {64}, fresh.get());
    std::string bytes;
    EXPECT_EQ(reads_after_forget(boundary, &bytes), want);
    EXPECT_EQ(bytes, CanonicalBytes(*fresh));
    const ScopedFault fault(Fault::kOvqTokenCountKept);
    EXPECT_NE(reads_after_forget(boundary, &bytes), want);
    EXPECT_NE(bytes, CanonicalBytes(*fresh));
  }
}

}  // namespace
}  // namespace lethe
