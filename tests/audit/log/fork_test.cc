// Goal: a log never signs two heads that do not extend one another (audit.md A7), whatever is done to its directory: kill at
// every moment between two writes, clones, older copies, two owners at once.
// Method: copies of one log's directory that share an anchor. A cycle clones or restores some copy, then a child process opens
// one, appends and may be killed at a random crash point. Every head in any database and every published one is
// collected; all must lie on one history. Without the anchor the same cycles must find a fork.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include <sys/wait.h>
#include <unistd.h>

#include "audit/log/audit_log.h"
#include "audit/log/closed_log.h"
#include "audit/log/log_anchor.h"
#include "tests/audit/log/log_testing.h"
#include "tests/audit/temp_directory.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;
namespace fs = std::filesystem;

constexpr char kOrigin[] = "test.example/log";
constexpr int kNumCopies = 4;
constexpr int kCrashPointsMax = 14;

int NumCycles() {
  return std::getenv("LETHE_TEST_LONG") != nullptr &&
                 std::string(std::getenv("LETHE_TEST_LONG")) == "1"
             ? 10'000
             : 300;
}

class ForkWorld {
 public:
  ForkWorld(uint64_t seed, bool with_anchor) : random_(seed), with_anchor_(with_anchor) {}

  std::string CopyPath(int copy) const { return absl::StrCat(directory_.path(), "/copy", copy); }
  AuditLogOptions Options(int copy) const {
    return {CopyPath(copy) + "/log", kOrigin, TestLogKey(),
            with_anchor_ ? directory_.path() + "/ledger" : ""};
  }

  void Cycle() {
    const int copy = Random(kNumCopies);
    if (Random(4) == 0) Clone(Random(kNumCopies), copy);
    const int crash_point = Random(2) == 0 ? 0 : 1 + Random(kCrashPointsMax);
    Run(copy, crash_point, 1 + Random(3));
    Collect(copy);
  }

  int num_forks() const { return num_forks_; }
  int num_frozen() const { return num_frozen_; }
  int num_killed() const { return num_killed_; }
  uint64_t num_heads() const { return roots_.size(); }

 private:
  int Random(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  void Clone(int from, int to) {
    if (from == to || !fs::exists(CopyPath(from))) return;
    fs::remove_all(CopyPath(to));
    fs::copy(CopyPath(from), CopyPath(to), fs::copy_options::recursive);
  }

  void Run(int copy, int crash_point, int num_appends) {
    const int first_leaf = next_leaf_;
    next_leaf_ += num_appends;
    const pid_t child = fork();
    if (child == 0) {
      lethe::testing::CrashAtPoint(crash_point);
      const absl::StatusOr<std::unique_ptr<AuditLog>> log = AuditLog::Open(Options(copy));
      if (!log.ok()) _exit(2);
      if (!(*log)->frozen().ok()) _exit(1);
      for (int i = 0; i < num_appends; ++i) {
        const std::string body = absl::StrCat("body ", first_leaf + i);
        if (!(*log)->Append(TestLeaf(first_leaf + i), body).ok()) _exit(3);
      }
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    num_frozen_ += WEXITSTATUS(status) == 1 ? 1 : 0;
    num_killed_ += WEXITSTATUS(status) == lethe::testing::kCrashExit ? 1 : 0;
    // 2 and 3 would be errors that nothing here causes.
    EXPECT_TRUE(WEXITSTATUS(status) != 2 && WEXITSTATUS(status) != 3) << WEXITSTATUS(status);
  }

  // Of a copy of the copy, since SQLite writes when it opens.
  void Collect(int copy) {
    if (!fs::exists(CopyPath(copy) + "/log/log.db")) return;
    const std::string view = directory_.path() + "/view";
    fs::remove_all(view);
    fs::copy(CopyPath(copy), view, fs::copy_options::recursive);
    const absl::StatusOr<std::unique_ptr<ClosedLog>> log = ClosedLog::Open(view + "/log");
    if (absl::IsNotFound(log.status())) return;  // killed before it had an identity
    ASSERT_OK(log.status());
    Findings findings;
    const LogImage image = (*log)->Read(&findings);
    std::vector<std::string> notes = image.heads;
    if (image.head.has_value()) notes.push_back(image.checkpoint);
    for (const std::string& note : notes) {
      ASSERT_OK_AND_ASSIGN(const Checkpoint head, OpenCheckpoint(note, (*log)->verifier_key()));
      const auto [known, is_new] = roots_.emplace(head.tree_size, head.root_hash);
      num_forks_ += is_new || known->second == head.root_hash ? 0 : 1;
    }
    // Heads of other sizes: this copy's history must go through every signed head that it reaches.
    for (const auto& [tree_size, root] : roots_) {
      if (tree_size > image.tree.num_leaves()) break;
      num_forks_ += *image.tree.RootAt(tree_size) == root ? 0 : 1;
    }
  }

  const TempDirectory directory_{TempDirectory::Where::kMemory};
  std::mt19937_64 random_;
  const bool with_anchor_;
  int next_leaf_ = 0;
  std::map<uint64_t, Sha256Digest> roots_;
  int num_forks_ = 0;
  int num_frozen_ = 0;
  int num_killed_ = 0;
};

TEST(ForkTest, NoCycleOfKillsClonesAndRestoresForksTheLog) {
  int num_killed = 0;
  int num_frozen = 0;
  uint64_t num_heads = 0;
  // Short lives: once every copy but one is frozen a world has little left to show.
  for (int cycle = 0, seed = 1; cycle < NumCycles(); ++seed) {
    ForkWorld world(static_cast<uint64_t>(seed), true);
    for (int i = 0; i < 20; ++i, ++cycle) {
      world.Cycle();
      ASSERT_EQ(world.num_forks(), 0) << "seed " << seed << ", cycle " << i;
    }
    num_killed += world.num_killed();
    num_frozen += world.num_frozen();
    num_heads += world.num_heads();
  }
  RecordProperty("killed", num_killed);
  EXPECT_GT(num_killed, NumCycles() / 20);
  EXPECT_GT(num_frozen, NumCycles() / 20);
  EXPECT_GT(num_heads, static_cast<uint64_t>(NumCycles()) / 3);
}

TEST(ForkTest, WithoutTheAnchorTheSameCyclesFork) {
  int num_forks = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    ForkWorld world(seed, false);
    for (int i = 0; i < 20; ++i) world.Cycle();
    num_forks += world.num_forks() > 0 ? 1 : 0;
  }
  EXPECT_GE(num_forks, 2);
}

class AnchorTest : public ::testing::Test {
 protected:
  AuditLogOptions Options(const std::string& name = "log") const {
    return {directory_.path() + "/" + name, kOrigin, TestLogKey(), directory_.path() + "/ledger"};
  }
  std::string AnchorPath() const { return directory_.path() + "/ledger/log.anchor"; }
  void AppendSome(int begin, int end) const {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
    ASSERT_OK(log->frozen());
    for (int i = begin; i < end; ++i) ASSERT_OK(log->Append(TestLeaf(i), "body"));
  }
  void Copy(const std::string& from, const std::string& to) const {
    fs::copy(directory_.path() + "/" + from, directory_.path() + "/" + to,
             fs::copy_options::recursive);
  }
  void ExpectFrozen(const AuditLogOptions& options, const char* text) const {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(options));
    EXPECT_THAT(log->frozen(), StatusIs(absl::StatusCode::kDataLoss, text));
    EXPECT_THAT(log->Append(TestLeaf(99), "body"), StatusIs(absl::StatusCode::kDataLoss, text));
    EXPECT_THAT(log->SignedCheckpoint(), StatusIs(absl::StatusCode::kDataLoss));
  }
  const TempDirectory directory_{TempDirectory::Where::kMemory};
};

TEST_F(AnchorTest, TwoOwnersAtOnceAreRefusedByLogAndByAnchor) {
  AppendSome(0, 2);
  Copy("log", "clone");
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
  EXPECT_THAT(AuditLog::Open(Options()), StatusIs(absl::StatusCode::kFailedPrecondition, "anchor"));
  EXPECT_THAT(AuditLog::Open(Options("clone")),
              StatusIs(absl::StatusCode::kFailedPrecondition, "in use by another process"));
  AuditLogOptions other_anchor = Options();
  other_anchor.anchor_directory += "2";
  EXPECT_THAT(AuditLog::Open(other_anchor),
              StatusIs(absl::StatusCode::kFailedPrecondition, "in use by another process"));
}

TEST_F(AnchorTest, AnOlderCopyFreezes) {
  AppendSome(0, 2);
  Copy("log", "backup");
  AppendSome(2, 4);
  ExpectFrozen(Options("backup"), "old ticket");
  AppendSome(4, 5);  // the newest copy goes on
}

TEST_F(AnchorTest, ACloneOfTheSameSizeFreezesOnceTheOtherWasStarted) {
  AppendSome(0, 2);
  Copy("log", "clone");
  AppendSome(0, 0);
  ExpectFrozen(Options("clone"), "old ticket");
}

// The ticket alone would not do: a copy of a running log holds the present one.
TEST_F(AnchorTest, ACopyOfARunningLogFreezesWhenItFallsBehind) {
  AppendSome(0, 1);
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
    Copy("log", "hot");
    ASSERT_OK(log->Append(TestLeaf(1), "body"));
    ASSERT_OK(log->Append(TestLeaf(2), "body"));
  }
  ExpectFrozen(Options("hot"), "older copy");
}

TEST_F(AnchorTest, ACopyThatLacksOneLeafIsCompletedToTheVerySameHead) {
  std::string head;
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
    Copy("log", "hot");
    ASSERT_OK(log->Append(TestLeaf(0), "the body"));
    ASSERT_OK_AND_ASSIGN(head, log->SignedCheckpoint());
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> copy, AuditLog::Open(Options("hot")));
  ASSERT_OK(copy->frozen());
  ASSERT_OK_AND_ASSIGN(const std::string completed, copy->SignedCheckpoint());
  EXPECT_EQ(completed, head);
  ASSERT_OK_AND_ASSIGN(const std::string body, copy->Body(MerkleLeafHash(TestLeaf(0))));
  EXPECT_EQ(body, "the body");
}

TEST_F(AnchorTest, AMissingAnchorFreezesUnlessAdopted) {
  AppendSome(0, 2);
  fs::remove(AnchorPath());
  ExpectFrozen(Options(), "anchor is missing");
  AuditLogOptions adopting = Options();
  adopting.adopt = true;
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(adopting));
    EXPECT_OK(log->frozen());
  }
  AppendSome(2, 3);
}

TEST_F(AnchorTest, AnAnchorThatIsOlderOrDamagedOrAnothersFreezes) {
  AppendSome(0, 2);
  const std::string older = ReadFile(AnchorPath());
  AppendSome(2, 3);
  const std::string newest = ReadFile(AnchorPath());
  WriteFile(AnchorPath(), older);
  ExpectFrozen(Options(), "");
  for (size_t at = 0; at < newest.size(); ++at) {
    std::string flipped = newest;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    EXPECT_THAT(ParseAnchorText(flipped), StatusIs(absl::StatusCode::kDataLoss)) << at;
  }
  WriteFile(AnchorPath(), newest.substr(0, newest.size() / 2));
  ExpectFrozen(Options(), "damaged");
  ASSERT_OK_AND_ASSIGN(AnchorState state, ParseAnchorText(newest));
  state.vkey = "other.example+00000000+x";
  WriteFile(AnchorPath(), WriteAnchorText(state));
  ExpectFrozen(Options(), "another log");
}

TEST_F(AnchorTest, AnExpectedHeadMustBeExtended) {
  AppendSome(0, 3);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
  AuditLogOptions options = Options();
  ASSERT_OK_AND_ASSIGN(const std::string held, log->SignedCheckpoint());
  Copy("log", "clone");
  Copy("ledger", "cloned-ledger");
  ASSERT_OK(log->Append(TestLeaf(3), "body"));
  ASSERT_OK_AND_ASSIGN(const std::string newer, log->SignedCheckpoint());
  // Another machine, whose anchor was copied too: a head that somebody kept is what tells.
  options.directory = directory_.path() + "/clone";
  options.anchor_directory = directory_.path() + "/cloned-ledger";
  options.expected_heads = {held};
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> clone, AuditLog::Open(options));
    EXPECT_OK(clone->frozen());
  }
  options.expected_heads = {held, newer};
  ExpectFrozen(options, "fewer than the expected head signs");
}

TEST_F(AnchorTest, AnErasedBodyLeavesTheAnchorToo) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
  ASSERT_OK_AND_ASSIGN(const AppendedLeaf leaf, log->Append(TestLeaf(0), "a body that goes"));
  ASSERT_OK_AND_ASSIGN(const AnchorState before, ParseAnchorText(ReadFile(AnchorPath())));
  EXPECT_EQ(before.body, "a body that goes");
  ASSERT_OK(log->EraseBody(leaf.leaf_hash));
  ASSERT_OK_AND_ASSIGN(const AnchorState after, ParseAnchorText(ReadFile(AnchorPath())));
  EXPECT_EQ(after.body, "");
  EXPECT_EQ(after.tree_size, 1u);
}

// A refused append must not come back from the anchor at the next start.
TEST_F(AnchorTest, AnAppendThatFailsBeforeItsCommitIsTakenBackFromTheAnchor) {
  AppendSome(0, 1);
  const std::string blocker = AnchorPath() + ".new";
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
    fs::create_directory(blocker);
    EXPECT_FALSE(log->Append(TestLeaf(1), "body").ok());
    // The anchor could not be written back either, so the log says that it does not know.
    EXPECT_THAT(log->FindLeaf(MerkleLeafHash(TestLeaf(1))), StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_THAT(log->FindLeaf(MerkleLeafHash(TestLeaf(2))), StatusIs(absl::StatusCode::kNotFound));
    fs::remove(blocker);
  }
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
  EXPECT_OK(log->frozen());
  EXPECT_EQ(log->num_leaves(), 1u);
}

}  // namespace
}  // namespace lethe::audit
