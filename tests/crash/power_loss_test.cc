// Goal: a loss of power at any moment, whatever it leaves of what was not synced, loses nothing that was answered and
// leaves nothing half done; and every protection that this rests on is needed.
// Method: a story is played once and its file operations are written down (FileCalls); before every sync and behind every
// answer, 20 patterns of dropped, reordered, torn and mangled unsynced operations give directories to start on.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "audit/crypto/sha256.h"
#include "server/store/secret_file.h"
#include "tests/crash/crash_story.h"
#include "tests/crash/file_calls.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/long_run.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

struct Counts {
  int64_t positions = 0;
  int64_t images = 0;
  int64_t distinct = 0;
};

// Until `most` complaints.
std::vector<std::string> LosePower(const CrashStory& story, uint64_t seed, size_t most,
                                   Counts* counts) {
  const audit::TempDirectory directory(audit::TempDirectory::Where::kMemory);
  std::vector<std::string> complaints;
  for (const size_t position : story.Positions()) {
    if (complaints.size() >= most) break;
    std::set<uint64_t> seen;
    ++counts->positions;
    for (int pattern = 0; pattern < kNumTearPatterns && complaints.size() < most; ++pattern) {
      const DiskImage image = story.trace().ImageAt(position, {pattern, seed});
      ++counts->images;
      // What nobody can tell from an earlier one of this position; a kill promises more.
      if (!seen.insert(HashOf(image)).second && pattern != kAllKept) continue;
      ++counts->distinct;
      WriteImage(image, directory.path() + "/image");
      const bool repeat = pattern == kAllDropped || pattern == kAllKept;
      for (std::string& complaint :
           story.Check(directory.path() + "/image", position, pattern == kAllKept, repeat)) {
        complaints.push_back(complaint + " pattern " + std::to_string(pattern));
      }
    }
  }
  return complaints;
}

TEST(PowerLossRounds, NothingAnsweredIsLostWhateverTheDiskKept) {
  for (LongRun run("power_loss"); run.Next();) {
    const CrashStory story(WholeStory());
    Counts counts;
    ASSERT_THAT(LosePower(story, run.seed(), 10, &counts), IsEmpty()) << "seed " << run.seed();
    run.Count("positions", counts.positions);
    run.Count("images", counts.images);
    run.Count("distinct images", counts.distinct);
  }
}

// Answers to repeated requests are found under it.
TEST(SecretFilePowerLossTest, AKeyThatWasGivenOutStays) {
  const audit::TempDirectory directory(audit::TempDirectory::Where::kMemory);
  const std::string run = directory.path() + "/run";
  const std::string image = directory.path() + "/image";
  std::filesystem::create_directory(run);
  DiskTrace trace(run);
  FileCalls::Watch(run, &trace);
  const auto key = LoadOrCreateSecret(run + "/request.key");
  FileCalls::StopWatching();
  ASSERT_OK(key);
  for (int pattern = 0; pattern < kNumTearPatterns; ++pattern) {
    WriteImage(trace.ImageAt(trace.num_operations(), {pattern, 1}), image);
    ASSERT_OK_AND_ASSIGN(const audit::Secret32 again, LoadOrCreateSecret(image + "/request.key"));
    EXPECT_EQ(audit::AsStringView(again.bytes()), audit::AsStringView(key->bytes())) << pattern;
  }
}

class PowerLossTest : public ::testing::TestWithParam<Fault> {};

TEST_P(PowerLossTest, EveryProtectionIsNeeded) {
  SetFault(GetParam());
  const CrashStory story(WholeStory());
  SetFault(std::nullopt);
  Counts counts;
  EXPECT_THAT(LosePower(story, 1, 1, &counts), Not(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Faults, PowerLossTest,
                         ::testing::Values(Fault::kDirectoryNotSynced, Fault::kNewKeysNotSynced,
                                           Fault::kCommitNotSynced, Fault::kIntentNotWritten,
                                           Fault::kKeysDestroyedEarly, Fault::kHeadNotSynced));

}  // namespace
}  // namespace lethe::testing
