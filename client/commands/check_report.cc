#include "client/commands/check_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/commands/report.h"

namespace lethe::client {
namespace {

const char* ResultWord(audit::CheckResult result) {
  switch (result) {
    case audit::CheckResult::kOk:
      return "ok";
    case audit::CheckResult::kFailed:
      return "FAILED";
    case audit::CheckResult::kNotChecked:
      return "not checked";
  }
  return "FAILED";
}

}  // namespace

}  // namespace lethe::client
