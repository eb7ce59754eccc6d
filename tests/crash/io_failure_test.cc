// Goal: a file call that fails, once or from then on, gives an error or the end of the process, never an answer that is
// not on disk: what was answered is there after a kill and after a loss of power, what was not is whole or absent, a
// failed sync is not asked for again, and a server that goes on is sound.
// Method: the n-th file call of an operation fails, for every n until the operation comes through (SQLite's own method).
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/crash/crash_case.h"
#include "tests/crash/file_calls.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/long_run.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

struct Outcome {
  bool came = false;  // the planned failure
  bool answered = false;
  bool ended = false;  // the process would have
  std::vector<std::string> complaints;
};

// The operation under the plan, and what a kill and losses of power leave behind it.
Outcome RunFailing(const CrashCase& test, const FailurePlan& plan, std::optional<Fault> fault) {
  Outcome outcome;
  const CaseCopy copy(test);
  DiskTrace trace(copy.path());
  FileCalls::Watch(copy.path(), &trace);
  CrashWorld world(copy.data_path());
  if (!test.starts()) LETHE_CHECK(world.Open().ok());
  FileCalls::Fail(plan);
  SetFault(fault);
  const absl::Status said = test.step().run(&world);
  outcome.answered = said.ok();
  outcome.came = FileCalls::failed();
  const std::string failed_call = FileCalls::failed_call();
  FileCalls::Fail({});
  SetFault(std::nullopt);
  outcome.ended = world.num_failures > 0;
  const auto check = [&](const char* when, bool answered) {
    for (const int pattern : {kAllKept, kAllDropped, 8}) {
      const TearPattern tear = {pattern, static_cast<uint64_t>(plan.call)};
      WriteImage(trace.ImageAt(trace.num_operations(), tear), copy.image_path());
      for (const std::string& complaint :
           test.Check(copy.image_path(), pattern == kAllKept, answered)) {
        outcome.complaints.push_back(absl::StrCat("failed ", failed_call, ", then ",
                                                  said.ToString(), "; ", when, ", pattern ",
                                                  pattern, ": ", complaint));
      }
    }
  };
  check("behind the failure", outcome.answered);
  if (test.starts()) {
    // Whatever it came to, the directories above are started on again.
  } else if (outcome.ended) {
    const absl::Status later =
        world.registry().Create({nullptr, {}, "later", SmallVectors()}, {}).status();
    if (later.ok()) outcome.complaints.push_back("a broken store takes a change");
  } else if (!outcome.answered) {
    const absl::Status again = test.step().run(&world);
    // A log that read nonsense signs nothing before a new start has read it again.
    const bool is_done = test.step().is_stream || again.ok() || world.num_failures > 0 ||
                         !world.data->log()->frozen().ok();
    if (!is_done) {
      outcome.complaints.push_back(absl::StrCat("failed ", failed_call, ", then ", said.ToString(),
                                                "; a repeat fails: ", again.ToString()));
    }
    check("behind the repeat", again.ok());
  }
  FileCalls::StopWatching();
  return outcome;
}

struct Sweep {
  int64_t num_runs = 0;
  int64_t num_ended = 0;
  int64_t num_refused = 0;
  std::vector<std::string> complaints;
};

// Every `stride`-th call.
Sweep FailEveryCall(const CrashCase& test, FailurePlan plan, int64_t stride,
                    std::optional<Fault> fault = std::nullopt) {
  Sweep sweep;
  for (plan.call = 1; sweep.complaints.size() < 5; plan.call += stride) {
    const Outcome outcome = RunFailing(test, plan, fault);
    ++sweep.num_runs;
    sweep.num_ended += outcome.ended ? 1 : 0;
    sweep.num_refused += outcome.answered || outcome.ended ? 0 : 1;
    for (const std::string& complaint : outcome.complaints) {
      sweep.complaints.push_back(absl::StrCat("call ", plan.call, ": ", complaint));
    }
    if (!outcome.came) {
      if (!outcome.answered) sweep.complaints.push_back("it fails by itself");
      return sweep;
    }
  }
  return sweep;
}

class IoFailureTest : public ::testing::TestWithParam<CaseKind> {};

TEST_P(IoFailureTest, NoFailedCallLosesOrInventsAnything) {
  const CrashCase test(GetParam());
  const bool is_swept = GetParam() == CaseKind::kForget || GetParam() == CaseKind::kForgetVectors;
  const int64_t stride = is_swept || IsLongTest() ? 1 : 5;
  for (const FileFailure failure :
       {FileFailure::kError, FileFailure::kDiskFull, FileFailure::kShortWrite}) {
    for (const bool for_ever : {false, true}) {
      const Sweep sweep = FailEveryCall(test, {failure, 0, for_ever}, stride);
      EXPECT_THAT(sweep.complaints, IsEmpty())
          << test.step().name << ", failure " << static_cast<int>(failure)
          << (for_ever ? " for ever" : " once");
      std::cout << test.step().name << ", failure " << static_cast<int>(failure)
                << (for_ever ? " for ever: " : " once: ") << sweep.num_runs << " runs, "
                << sweep.num_refused << " refused, " << sweep.num_ended << " ended the process\n";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, IoFailureTest, ::testing::ValuesIn(kAllCases),
                         [](const auto& test) { return CaseName(test.param); });

// A mistake in how a failure is taken.
struct Mistake {
  Fault fault;
  FileFailure failure;
};

class IoFailureMistakeTest : public ::testing::TestWithParam<Mistake> {};

TEST_P(IoFailureMistakeTest, IsFound) {
  const CrashCase test(CaseKind::kForgetVectors);
  const FailurePlan plan = {GetParam().failure, 0, false};
  EXPECT_THAT(FailEveryCall(test, plan, 1, GetParam().fault).complaints, Not(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Faults, IoFailureMistakeTest,
                         ::testing::Values(Mistake{Fault::kFailedSyncRetried, FileFailure::kError},
                                           Mistake{Fault::kFailedCommitUndone, FileFailure::kError},
                                           Mistake{Fault::kFailureOutlived, FileFailure::kError},
                                           Mistake{Fault::kUnfinishedServed,
                                                   FileFailure::kDiskFull}));

}  // namespace
}  // namespace lethe::testing
