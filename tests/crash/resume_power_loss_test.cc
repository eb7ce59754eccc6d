// Goal: after a loss of power a stream goes on from the last token that its client got, or, where that token was lost, the
// same answer comes again from its start.
// Method: a stream's file operations are written down (FileCalls); behind every token 20 patterns of what a loss of power
// leaves give directories to start on; the oracle is what the stream sent.
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/generation/durable_sink.h"
#include "tests/crash/crash_story.h"
#include "tests/crash/file_calls.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::testing::ElementsAreArray;

constexpr int64_t kTokens = 8;

GenerateCommand Command() {
  GenerateCommand command = Prompt("and then", kTokens);
  command.sampling.temperature = 1;
  command.request = Key("g1");
  return command;
}

absl::Status RunStream(const GenerateCommand& command, const std::string& id, DurableWorld* world,
                       RecordingSink* recording) {
  const FakeCall call;
  const std::shared_ptr<SessionEntry> entry = world->Find(id);
  DurableSink sink(entry->journal.get(), recording);
  return lethe::Generate(command, call, world->scheduler(), entry, &sink);
}

struct ResumeCounts {
  int resumed = 0;
  int from_start = 0;
};

// On what a loss of power left after `sink` got the first `num_tokens` tokens.
void ResumeOn(const std::string& directory, const std::string& id, const RecordingSink& sink,
              size_t num_tokens, ResumeCounts* counts) {
  CrashWorld world(directory + "/data");
  ASSERT_OK(world.Open());
  GenerateCommand command = Command();
  command.last_token_id = num_tokens == 0 ? 0 : sink.tokens[num_tokens - 1].token_id;
  RecordingSink rest;
  ASSERT_OK(RunStream(command, id, &world, &rest));
  ASSERT_TRUE(rest.started.at(0).resumed_after.has_value());  // the request was durable
  const bool is_from_start = rest.started[0].resumed_after == 0u;
  ++(is_from_start && num_tokens > 0 ? counts->from_start : counts->resumed);
  const std::vector<int32_t> whole = sink.VocabIds();
  const size_t first = is_from_start ? 0 : num_tokens;
  EXPECT_THAT(rest.VocabIds(),
              ElementsAreArray(whole.begin() + static_cast<std::ptrdiff_t>(first), whole.end()));
  EXPECT_EQ(rest.finished.at(0).reason, FinishReason::kMaxTokens);
  EXPECT_EQ(world.View(id).digest, FreshDigest(HistoryOf(world.Find(id))));
  EXPECT_EQ(world.View(id).inputs.size(), 15 + 8 + whole.size());
}

TEST(ResumePowerLossTest, TheSameAnswerWhateverTheDiskKept) {
  const audit::TempDirectory directory(audit::TempDirectory::Where::kMemory);
  const std::string run = directory.path() + "/run";
  const std::string image = directory.path() + "/image";
  std::filesystem::create_directory(run);
  DiskTrace trace(run);
  FileCalls::Watch(run, &trace);
  std::vector<size_t> positions;
  RecordingSink sink;
  std::string id;
  {
    CrashWorld world(run + "/data");
    ASSERT_OK(world.Open());
    id = world.NewModelSession()->session_id;
    ASSERT_OK(world.Append(id, "the first visit", "", ""));
    sink.on_token = [&] { positions.push_back(trace.num_operations()); };
    ASSERT_OK(RunStream(Command(), id, &world, &sink));
    positions.push_back(trace.num_operations());
  }
  FileCalls::StopWatching();
  ASSERT_EQ(positions.size(), sink.tokens.size() + 1);
  ResumeCounts counts;
  for (size_t i = 0; i < positions.size(); ++i) {
    const size_t num_tokens = std::min(i + 1, sink.tokens.size());
    for (int pattern = 0; pattern < kNumTearPatterns; ++pattern) {
      SCOPED_TRACE(::testing::Message() << "position " << i << ", pattern " << pattern);
      WriteImage(trace.ImageAt(positions[i], {pattern, 1}), image);
      ResumeOn(image, id, sink, num_tokens, &counts);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GE(counts.resumed, 20);
  EXPECT_GE(counts.from_start, 20);
}

}  // namespace
}  // namespace lethe::testing
