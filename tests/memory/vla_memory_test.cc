// Goal: what is VLA's own in its memory: options, bytes, the nudge's phase, the mutant it stands
// for.
// Method: direct calls; the mutant must change reads after a restore where the memory does not.
#include "memory/vla/vla_memory.h"

#include <cmath>

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

StreamCase NudgedStream() {
  StreamCase stream = testing::AllStreamCases()[3];
  EXPECT_EQ(stream.name, "VlaNudgePaperRead");
  return stream;
}

TEST(VlaMemoryTest, RejectsOptionsByName) {
  VlaOptions options;
  EXPECT_OK(VlaMemory::Create(options));
  for (double lambda0 : {0.0, -1.0, 1e7, 1e-7, std::nan("")}) {
    options.lambda0 = lambda0;
    EXPECT_THAT(VlaMemory::Create(options),
                StatusIs(absl::StatusCode::kInvalidArgument, "lambda0"));
  }
  options = VlaOptions();
  options.value_dim = 20;
  EXPECT_THAT(VlaMemory::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument, "value_dim"));
  options = VlaOptions();
  options.num_heads = 0;
  EXPECT_THAT(VlaMemory::Create(options), StatusIs(absl::StatusCode::kInvalidArgument, "heads"));
}

TEST(VlaMemoryTest, StateBytesAreThoseOfItsMatrices) {
  VlaOptions options{2, 16, 24, VlaVariant::kVla, false, 0.1, VlaReadNorm::kRms};
  EXPECT_EQ((*VlaMemory::Create(options))->state_bytes(), 2u * (16 * 16 + 24 * 16) * 4);
  options.read_norm = VlaReadNorm::kPaper;
  EXPECT_EQ((*VlaMemory::Create(options))->state_bytes(), 2u * (16 * 16 + 24 * 16 + 16) * 4);
  EXPECT_EQ((*VlaMemory::Create(options))->Snapshot()->state_bytes(),
            (*VlaMemory::Create(options))->state_bytes());
}

TEST(VlaMemoryTest, RestoreRejectsAnotherShape) {
  VlaOptions options{2, 16, 24, VlaVariant::kVla, false, 0.1, VlaReadNorm::kRms};
  const auto memory = *VlaMemory::Create(options);
  options.read_norm = VlaReadNorm::kPaper;
  EXPECT_THAT(memory->Restore(*(*VlaMemory::Create(options))->Snapshot()),
              StatusIs(absl::StatusCode::kInvalidArgument, "shape"));
}

TEST(VlaMemoryTest, AStepCountThatSurvivesARestoreChangesStateAndReads) {
  const StreamCase stream = NudgedStream();
  const StreamTokens tokens(stream, 160, 1);
  const auto reads_after_forget = [&](std::string* bytes) {
    const std::unique_ptr<Memory> memory = stream.create();
    StepThrough(stream, tokens, 0, 64, {64}, memory.get());
    const std::unique_ptr<MemorySnapshot> snapshot = memory->Snapshot();
    StepThrough(stream, tokens, 64, 103, {64}, memory.get());
    EXPECT_OK(memory->Restore(*snapshot));
    std::vector<float> reads = StepThrough(stream, tokens, 64, 160, {64}, memory.get());
    *bytes = CanonicalBytes(*memory);
    return reads;
  };
  const std::unique_ptr<Memory> fresh = stream.create();
  StepThrough(stream, tokens, 0, 64, {64}, fresh.get());
  const std::vector<float> want = StepThrough(stream, tokens, 64, 160, {64}, fresh.get());
  std::string bytes;
  EXPECT_EQ(reads_after_forget(&bytes), want);
  EXPECT_EQ(bytes, CanonicalBytes(*fresh));
  const ScopedFault fault(Fault::kVlaStepCountKept);
  EXPECT_NE(reads_after_forget(&bytes), want);
  EXPECT_NE(bytes, CanonicalBytes(*fresh));
}

}  // namespace
}  // namespace lethe
