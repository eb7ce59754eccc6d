// Goal: a server that is killed at random times, starts included, has what it answered when it is started again: sessions
// with their digests, tokens that a stream delivered, records that verify; the call under way was done whole or not
// at all, and its repeat by request_id does it once; a stream under way goes on behind the last token that arrived.
// Method: the program and a client over gRPC; appends, Forgets, certificates and streams until the kill. What a stream must
// come to is what a fork of an empty session writes that is told the same history.
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/audit/temp_directory.h"
#include "tests/crash/kill_client.h"
#include "tests/testing/long_run.h"

namespace lethe::testing {
namespace {

class ServerKillRounds : public ::testing::TestWithParam<int> {};

TEST_P(ServerKillRounds, NothingAnsweredIsLost) {
  constexpr int kKills = 250;
  for (LongRun run(absl::StrCat("server_kill_", GetParam())); run.Next();) {
    const audit::TempDirectory directory(audit::TempDirectory::Where::kMemory);
    KillClient client(directory.path(), 2 * run.seed() + static_cast<uint64_t>(GetParam()));
    for (int kill = 0; kill < kKills; ++kill) {
      client.Live();
      ASSERT_EQ(client.complaint(), "") << "kill " << kill << ", seed " << run.seed();
    }
    EXPECT_GT(client.num_compared(), kKills / 2);
    EXPECT_GT(client.num_answered(), kKills / 2);
    EXPECT_GT(client.num_resumed(), 0);
    run.Count("kills", kKills);
    run.Count("starts compared", client.num_compared());
    run.Count("calls answered", client.num_answered());
    run.Count("streams gone on with", client.num_resumed());
  }
}

INSTANTIATE_TEST_SUITE_P(Halves, ServerKillRounds, ::testing::Values(0, 1));

}  // namespace
}  // namespace lethe::testing
