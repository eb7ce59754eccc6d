#include "tests/crash/crash_case.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "tests/server/store_testing.h"
#include "tests/testing/fault_switch.h"

namespace lethe::testing {
namespace {

struct CaseOfStory {
  CaseKind kind;
  const char* name;
  const char* step;  // of WholeStory
};

constexpr CaseOfStory kCases[] = {
    {CaseKind::kFirstStart, "FirstStart", "first start"},
    {CaseKind::kRecoverFinish, "RecoverFinish", "forget f1"},
    {CaseKind::kRecoverAbandon, "RecoverAbandon", "forget f1"},
    {CaseKind::kAppend, "Append", "append a3"},
    {CaseKind::kStream, "Stream", "stream g2"},
    {CaseKind::kForget, "Forget", "forget f1"},
    {CaseKind::kForgetVectors, "ForgetVectors", "forget f2"},
    {CaseKind::kCertify, "Certify", "certify c1"},
    {CaseKind::kSelect, "Select", "select e1"},
    {CaseKind::kDelete, "Delete", "delete d1"},
    {CaseKind::kRotateRecordKey, "RotateRecordKey", "append a3"},
    {CaseKind::kRotateLogKey, "RotateLogKey", "append a3"},
};

const CaseOfStory& CaseOf(CaseKind kind) {
  return *std::find_if(std::begin(kCases), std::end(kCases),
                       [&](const CaseOfStory& found) { return found.kind == kind; });
}

bool Settles(CaseKind kind) {
  return kind == CaseKind::kRecoverFinish || kind == CaseKind::kRecoverAbandon;
}

bool Rotates(CaseKind kind) {
  return kind == CaseKind::kRotateRecordKey || kind == CaseKind::kRotateLogKey;
}

// Of the server's keys, and a start under the new ones.
StoryStep Rotation(CaseKind kind) {
  KeyChange change;
  change.kind = KeyChange::Kind::kRotateRecordKey;
  if (kind == CaseKind::kRotateLogKey) {
    change.kind = KeyChange::Kind::kRotateLogKey;
    change.new_origin = "lethe.dev/audit/next";
  }
  return {
      CaseName(kind), [change](DurableWorld* world) -> absl::Status {
        world->Close();
        LETHE_RETURN_IF_ERROR(DataDirectory::ChangeKey(world->data_path(), "", change).status());
        return world->Open();
      }};
}

// Runs the step in a process that is killed right behind the named moment of kernels/base/crash_point.h.
void RunKilledAt(const char* moment, const StoryStep& step, const std::string& data_path) {
  const pid_t child = fork();
  if (child == 0) {
    CrashWorld world(data_path);
    if (!world.Open().ok()) _exit(1);
    CrashAtMoment(moment);
    step.run(&world).IgnoreError();
    _exit(0);
  }
  int status = 0;
  LETHE_CHECK(waitpid(child, &status, 0) == child);
  LETHE_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == kCrashExit);
}

}  // namespace

std::string CaseName(CaseKind kind) { return CaseOf(kind).name; }

bool CrashCase::starts() const {
  return kind_ == CaseKind::kFirstStart || Settles(kind_) || Rotates(kind_);
}

CrashCase::CrashCase(CaseKind kind) : kind_(kind) {
  const audit::TempDirectory directory(audit::TempDirectory::Where::kMemory);
  CrashWorld world(directory.path() + "/data");
  for (const StoryStep& step : WholeStory()) {
    step_ = step;
    if (step.name == CaseOf(kind).step) break;
    LETHE_CHECK(step.run(&world).ok());
  }
  world.Close();
  if (Settles(kind)) {
    RunKilledAt(
        kind == CaseKind::kRecoverFinish ? "a leaf is committed" : "a transaction is committed",
        step_, world.data_path());
    step_ = {CaseName(kind), [](DurableWorld* opened) { return opened->Open(); }};
  }
  if (Rotates(kind)) step_ = Rotation(kind);
  image_ = DiskTrace(directory.path()).ImageAt(0, {});
  if (kind != CaseKind::kFirstStart) {
    LETHE_CHECK(world.Open().ok());
    before_ = ViewOf(&world);
  }
  const std::vector<std::string> keys = DataKeysIn(world.data_path());
  LETHE_CHECK(step_.run(&world).ok());
  after_ = ViewOf(&world);
  const std::vector<std::string> kept = DataKeysIn(world.data_path());
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(dead_keys_), [&](const auto& key) {
    return std::find(kept.begin(), kept.end(), key) == kept.end();
  });
}

std::vector<std::string> CrashCase::Check(const std::string& directory, bool killed,
                                          bool answered) const {
  const std::string data_path = directory + "/data";
  std::vector<std::string> complaints;
  if (answered && CountFound(FileBytes(directory), dead_keys_) > 0) {
    complaints.push_back("a key is there that the answered call destroyed");
  }
  CrashWorld world(data_path);
  if (const absl::Status status = world.Open(); !status.ok()) {
    complaints.push_back(absl::StrCat("does not start: ", status.ToString()));
    return complaints;
  }
  // A session whose inputs make no sense comes as an exception of its StatusOr.
  try {
    for (std::string& complaint : ComplaintsOf(&world)) complaints.push_back(std::move(complaint));
    if (!complaints.empty()) return complaints;
    const WorldView view = ViewOf(&world);
    const bool is_done = EssenceOf(view) == EssenceOf(after_);
    const bool is_undone = EssenceOf(view) == EssenceOf(before_) ||
                           (step_.is_stream && IsBetween(view, before_, after_, &world));
    // Of a stream a loss of power may take the end.
    const bool must_be_done = answered && (killed || !step_.is_stream);
    if (must_be_done ? !is_done : !is_done && !is_undone) {
      complaints.push_back(absl::StrCat(answered ? "answered, and " : "", "is ", Shortly(view),
                                        "; before: ", Shortly(before_),
                                        "; after: ", Shortly(after_)));
    }
  } catch (const std::exception& error) {
    complaints.push_back(absl::StrCat("a session cannot be evaluated: ", error.what()));
  }
  return complaints;
}

CaseCopy::CaseCopy(const CrashCase& test)
    : path_(directory_.path() + "/run"), image_path_(directory_.path() + "/image") {
  WriteImage(test.image(), path_);
}

}  // namespace lethe::testing
