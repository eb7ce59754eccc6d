// CrashCase, CaseCopy: one operation of a server, the directory that it starts on, and what a failure in it may leave.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  FileCalls watches nothing while a case is made.
// Rejects:   none.
// Effects:   a CaseCopy's directories go away with it.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_TESTS_CRASH_CRASH_CASE_H_
#define LETHE_TESTS_CRASH_CRASH_CASE_H_

#include <string>
#include <vector>

#include "tests/crash/crash_story.h"
#include "tests/crash/disk_trace.h"

namespace lethe::testing {

enum class CaseKind {
  kFirstStart,
  kRecoverFinish,  // a start that finishes a Forget whose record is in the log
  kRecoverAbandon,
  kAppend,
  kStream,
  kForget,
  kForgetVectors,
  kCertify,
  kSelect,
  kDelete,
  kRotateRecordKey,
  kRotateLogKey,
};

inline constexpr CaseKind kAllCases[] = {
    CaseKind::kFirstStart,    CaseKind::kRecoverFinish,   CaseKind::kRecoverAbandon,
    CaseKind::kAppend,        CaseKind::kStream,          CaseKind::kForget,
    CaseKind::kForgetVectors, CaseKind::kCertify,         CaseKind::kSelect,
    CaseKind::kDelete,        CaseKind::kRotateRecordKey, CaseKind::kRotateLogKey};

std::string CaseName(CaseKind kind);

class CrashCase {
 public:
  explicit CrashCase(CaseKind kind);

  const StoryStep& step() const { return step_; }
  bool starts() const;  // the operation opens the world
  const DiskImage& image() const { return image_; }
  // What is wrong with a directory that a failure in the operation left, and a kill or a loss of power after it;
  // `answered`: the operation had been.
  std::vector<std::string> Check(const std::string& directory, bool killed, bool answered) const;

 private:
  const CaseKind kind_;
  StoryStep step_;
  DiskImage image_;  // before the operation
  WorldView before_;
  WorldView after_;
  std::vector<std::string> dead_keys_;  // that the operation destroys
};

// A directory to run the case in, and one for images of it.
class CaseCopy {
 public:
  explicit CaseCopy(const CrashCase& test);
  const std::string& path() const { return path_; }
  std::string data_path() const { return path_ + "/data"; }
  const std::string& image_path() const { return image_path_; }

 private:
  const audit::TempDirectory directory_{audit::TempDirectory::Where::kMemory};
  const std::string path_;
  const std::string image_path_;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_CRASH_CRASH_CASE_H_
