// Goal: an allocation that fails, once or from then on, ends the operation with an error or the process, and what is on
// disk is sound: answered changes are there, the others whole or absent.
// Method: the n-th allocation of an operation fails in a process of its own, set up as the server is; for every n of a
// Forget, elsewhere for a sample; the directory is looked at afterwards.
#include <csignal>
#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <sys/wait.h>
#include <unistd.h>

#include "server/process_setup.h"
#include "tests/crash/allocations.h"
#include "tests/crash/crash_case.h"
#include "tests/testing/long_run.h"

namespace lethe::testing {
namespace {

using ::testing::IsEmpty;

// How the process of the operation ends.
constexpr int kAnswered = 0;
constexpr int kOutOfMemory =
    1;  // EndWhenOutOfMemory, and a store that takes no more changes: the server's exit status
constexpr int kRefused = 3;
constexpr int kWentThrough = 4;  // without a failure
constexpr int kNotSound = 5;     // refused, and then not able to do it

// In the child: the operation, and after an error once more with memory.
int RunStarved(const CrashCase& test, const std::string& data_path, int64_t n, bool for_ever) {
  EndWhenOutOfMemory();
  CrashWorld world(data_path);
  world.on_failure = [] { _exit(kOutOfMemory); };
  if (!test.starts() && !world.Open().ok()) return kNotSound;
  Allocations::FailAt(n, for_ever);
  const bool answered = test.step().run(&world).ok();
  const bool came = Allocations::count() >= n;
  Allocations::FailAt(0, false);
  if (!came) return answered ? kWentThrough : kNotSound;
  if (answered) return kAnswered;
  if (test.starts() || test.step().is_stream) return kRefused;
  return test.step().run(&world).ok() ? kAnswered : kNotSound;
}

struct Starved {
  int64_t num_runs = 0;
  int64_t num_ended = 0;
  std::vector<std::string> complaints;
};

// Every `stride`-th allocation, from the `first` on.
Starved StarveEvery(const CrashCase& test, int64_t first, int64_t stride, bool for_ever) {
  Starved starved;
  for (int64_t n = first; starved.complaints.size() < 5; n += stride) {
    const CaseCopy copy(test);
    const pid_t child = fork();
    if (child == 0) _exit(RunStarved(test, copy.data_path(), n, for_ever));
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    ++starved.num_runs;
    // A check that failed (OpenSSL without memory) is an end too.
    const bool is_end = code == kOutOfMemory || code == -SIGABRT;
    starved.num_ended += is_end ? 1 : 0;
    if (!is_end && code != kAnswered && code != kRefused && code != kWentThrough) {
      starved.complaints.push_back(
          absl::StrCat("allocation ", n, ": the process ends with ", code));
    }
    const bool answered = code == kAnswered || code == kWentThrough;
    for (const std::string& complaint : test.Check(copy.path(), true, answered)) {
      starved.complaints.push_back(absl::StrCat("allocation ", n, ": ", complaint));
    }
    if (code == kWentThrough) break;
  }
  return starved;
}

// An operation, and whether allocations fail from the n-th on for ever.
class AllocationFailureTest : public ::testing::TestWithParam<std::tuple<CaseKind, bool>> {};

TEST_P(AllocationFailureTest, NoMissingMemoryLosesOrInventsAnything) {
  const auto [kind, for_ever] = GetParam();
  const bool is_swept = kind == CaseKind::kForget || IsLongTest();
  const CrashCase test(kind);
  // A rotation allocates 50,000 times and more.
  const bool is_rotation = kind == CaseKind::kRotateRecordKey || kind == CaseKind::kRotateLogKey;
  const int64_t sample = is_rotation ? 397 : 97;
  const Starved starved = StarveEvery(test, 1, is_swept ? 1 : sample, for_ever);
  EXPECT_THAT(starved.complaints, IsEmpty()) << test.step().name;
  std::cout << test.step().name << (for_ever ? " for ever: " : " once: ") << starved.num_runs
            << " runs, " << starved.num_ended << " ended the process\n";
}

INSTANTIATE_TEST_SUITE_P(Operations, AllocationFailureTest,
                         ::testing::Combine(::testing::ValuesIn(kAllCases), ::testing::Bool()),
                         [](const auto& test) {
                           return CaseName(std::get<0>(test.param)) +
                                  (std::get<1>(test.param) ? "ForEver" : "Once");
                         });

}  // namespace
}  // namespace lethe::testing
