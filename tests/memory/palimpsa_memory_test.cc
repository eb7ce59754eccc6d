// Goal: what is Palimpsa's own in its memory: options, bytes, the form without metaplasticity, the
// mutant it stands for.
// Method: direct calls; the mutant must change bits with the cut where the memory does not.
#include "memory/palimpsa/palimpsa_memory.h"

#include <algorithm>
#include <limits>

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
  StreamCase stream = testing::AllStreamCases()[0];
  EXPECT_EQ(stream.name, "Palimpsa");
  return stream;
}

TEST(PalimpsaMemoryTest, RejectsOptionsByName) {
  const auto status_of = [](int64_t heads, int64_t key_dim, int64_t value_dim) {
    return PalimpsaMemory::Create({{heads, key_dim, value_dim}, 1.0f, true}).status();
  };
  EXPECT_OK(status_of(1, 8, 8));
  EXPECT_THAT(status_of(0, 8, 8), StatusIs(absl::StatusCode::kInvalidArgument, "heads"));
  EXPECT_THAT(status_of(65, 8, 8), StatusIs(absl::StatusCode::kInvalidArgument, "heads"));
  EXPECT_THAT(status_of(1, 12, 8), StatusIs(absl::StatusCode::kInvalidArgument, "key_dim"));
  EXPECT_THAT(status_of(1, 0, 8), StatusIs(absl::StatusCode::kInvalidArgument, "key_dim"));
  EXPECT_THAT(status_of(1, 4104, 8), StatusIs(absl::StatusCode::kInvalidArgument, "key_dim"));
  EXPECT_THAT(status_of(1, 8, -8), StatusIs(absl::StatusCode::kInvalidArgument, "value_dim"));
}

TEST(PalimpsaMemoryTest, StateBytesAreThoseOfBothMatrices) {
  const auto with = *PalimpsaMemory::Create({{2, 16, 24}, 1.0f, true});
  const auto without = *PalimpsaMemory::Create({{2, 16, 24}, 1.0f, false});
  EXPECT_EQ(with->state_bytes(), 2u * 2 * 16 * 24 * sizeof(float));
  EXPECT_EQ(without->state_bytes(), 2u * 16 * 24 * sizeof(float));
  EXPECT_EQ(with->Snapshot()->state_bytes(), with->state_bytes());
}

TEST(PalimpsaMemoryTest, RestoreRejectsAnotherShape) {
  const auto memory = *PalimpsaMemory::Create({{2, 16, 24}, 1.0f, true});
  const auto other = *PalimpsaMemory::Create({{2, 16, 16}, 1.0f, true});
  const auto without = *PalimpsaMemory::Create({{2, 16, 24}, 1.0f, false});
  EXPECT_THAT(memory->Restore(*other->Snapshot()),
              StatusIs(absl::StatusCode::kInvalidArgument, "shape"));
  EXPECT_THAT(memory->Restore(*without->Snapshot()),
              StatusIs(absl::StatusCode::kInvalidArgument, "shape"));
}

TEST(PalimpsaMemoryTest, OverflowIsReportedAndRestoreHeals) {
  const StreamCase stream = Stream();
  StreamTokens tokens(stream, 2, 2);
  const std::unique_ptr<Memory> memory = stream.create();
  StepThrough(stream, tokens, 0, 1, {1}, memory.get());
  const std::unique_ptr<MemorySnapshot> snapshot = memory->Snapshot();
  const std::string want = CanonicalBytes(*memory);
  std::fill(tokens.v.begin(), tokens.v.end(), std::numeric_limits<float>::max());
  std::fill(tokens.k.begin(), tokens.k.end(), 2.0f);
  std::vector<float> out(2 * 24);
  EXPECT_THAT(memory->Step(tokens.Slice(1, 1), 1, absl::MakeSpan(out)),
              StatusIs(absl::StatusCode::kOutOfRange, "beyond f32"));
  ASSERT_OK(memory->Restore(*snapshot));
  EXPECT_EQ(CanonicalBytes(*memory), want);
}

TEST(PalimpsaMemoryTest, ATreeOverACallsTokensIsCaughtByTheCut) {
  const StreamCase stream = Stream();
  const StreamTokens tokens(stream, 100, 1);
  const auto bytes_after = [&](const std::vector<int64_t>& cuts) {
    const std::unique_ptr<Memory> memory = stream.create();
    StepThrough(stream, tokens, 0, tokens.count(), cuts, memory.get());
    return CanonicalBytes(*memory);
  };
  const std::string want = bytes_after({1});
  EXPECT_EQ(bytes_after({64}), want);
  const ScopedFault fault(Fault::kTreeOverChunks);
  EXPECT_NE(bytes_after({64}), bytes_after({1}));
  EXPECT_NE(bytes_after({64}), want);
}

}  // namespace
}  // namespace lethe
