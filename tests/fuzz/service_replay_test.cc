// Goal: the fuzz targets of the whole server hold on their seeds and on simple mutations of them, in every build.
// Method: corpus_replay.h.
#include "gtest/gtest.h"

#include "tests/fuzz/corpus_replay.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/testing/long_run.h"

namespace lethe::fuzz {
namespace {

int NumMutants() { return testing::IsLongTest() ? 5000 : 50; }

TEST(ServiceReplayTest, Request) { Replay("request", FuzzRequest, NumMutants()); }
TEST(ServiceReplayTest, Operations) { Replay("operations", FuzzOperations, NumMutants()); }

}  // namespace
}  // namespace lethe::fuzz
