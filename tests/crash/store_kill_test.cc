// Goal: keys, log, store and journal keep what they have answered whatever moment they are killed at, a start included:
// inputs and meta rows are those of the last answered change or of the one under way, the log holds a record
// exactly when the store shows its change, and keys that an answered change destroyed are gone.
// Method: a process makes random changes of three sessions and tells, in memory that it shares, what they lead to; it is
// killed at a random time; the next one starts on the directory, compares, and goes on.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/check.h"
#include "tests/audit/temp_directory.h"
#include "tests/crash/store_victim.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/long_run.h"

namespace lethe::testing {
namespace {

[[noreturn]] void Live(const std::string& path, uint64_t seed, std::optional<Fault> fault,
                       Board* board) {
  StoreVictim victim(path, seed, board);
  absl::Status status = victim.Start();
  if (status.ok()) status = victim.Compare();
  SetFault(fault);
  while (status.ok()) status = victim.ChangeSomething();
  std::snprintf(board->complaint, sizeof board->complaint, "%s", status.ToString().c_str());
  _exit(1);
}

struct Shared {
  Shared()
      : board(new (mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0)) Board()) {}
  ~Shared() { munmap(board, sizeof(Board)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  Board* const board;
};

struct Killing {
  int num_kills = 0;
  uint64_t num_checked = 0;
  uint64_t num_answered = 0;
  std::string complaint;
};

// Until the child has started, and the count is above what it was, or has ended.
void AwaitCompared(pid_t child, uint64_t before, const Board& board) {
  siginfo_t ended{};
  while (board.num_checked == before && ended.si_pid == 0) {
    usleep(300);
    waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT);
  }
}

// What libraries set up once, the processes inherit: they are to spend their lives on the store's work.
void WarmUp() {
  const audit::TempDirectory directory(audit::TempDirectory::Where::kMemory);
  const Shared shared;
  StoreVictim victim(directory.path() + "/data", 1, shared.board);
  LETHE_CHECK(victim.Start().ok() && victim.Compare().ok());
  for (int i = 0; i < 100; ++i) LETHE_CHECK(victim.ChangeSomething().ok());
}

// Starts afresh every `kKillsPerDirectory`: the log is read at every start.
Killing KillOften(int num_kills, uint64_t seed, std::optional<Fault> fault) {
  constexpr int kKillsPerDirectory = 100;
  constexpr uint64_t kLifeMicros = 1500;
  WarmUp();
  Killing killing;
  std::mt19937_64 random(seed);
  while (killing.num_kills < num_kills && killing.complaint.empty()) {
    const audit::TempDirectory directory(audit::TempDirectory::Where::kMemory);
    const Shared shared;
    const int last = std::min(num_kills, killing.num_kills + kKillsPerDirectory);
    while (killing.num_kills < last && killing.complaint.empty()) {
      const uint64_t life_seed = random();
      const uint64_t before = shared.board->num_checked;
      const pid_t child = fork();
      if (child == 0) Live(directory.path() + "/data", life_seed, fault, shared.board);
      // Some die while they start, the others among their changes.
      if (random() % 4 != 0) AwaitCompared(child, before, *shared.board);
      usleep(static_cast<useconds_t>(random() % kLifeMicros));
      kill(child, SIGKILL);
      int status = 0;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      ++killing.num_kills;
      if (WIFEXITED(status)) {
        killing.complaint = absl::StrCat("ended with ", WEXITSTATUS(status), ": ",
                                         static_cast<const char*>(shared.board->complaint));
      }
    }
    killing.num_checked += shared.board->num_checked;
    killing.num_answered += shared.board->num_answered;
  }
  return killing;
}

class StoreKillRounds : public ::testing::TestWithParam<int> {};

TEST_P(StoreKillRounds, NothingAnsweredIsLost) {
  for (LongRun run(absl::StrCat("store_kill_", GetParam())); run.Next();) {
    const Killing killing =
        KillOften(2500, 2 * run.seed() + static_cast<uint64_t>(GetParam()), std::nullopt);
    ASSERT_EQ(killing.complaint, "") << "kill " << killing.num_kills << ", seed " << run.seed();
    EXPECT_GT(killing.num_checked, 1000u);  // the others died before they had started
    EXPECT_GT(killing.num_answered, 2500u);
    run.Count("kills", killing.num_kills);
    run.Count("starts compared", static_cast<int64_t>(killing.num_checked));
    run.Count("changes answered", static_cast<int64_t>(killing.num_answered));
  }
}

INSTANTIATE_TEST_SUITE_P(Halves, StoreKillRounds, ::testing::Values(0, 1));

TEST(StoreKillTest, KillsFindAMissingIntentAndAKeyDestroyedTooEarly) {
  for (const Fault fault : {Fault::kIntentNotWritten, Fault::kKeysDestroyedEarly}) {
    EXPECT_NE(KillOften(1000, 3, fault).complaint, "") << static_cast<int>(fault);
  }
}

}  // namespace
}  // namespace lethe::testing
