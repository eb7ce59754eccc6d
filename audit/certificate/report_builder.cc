#include "audit/certificate/report_builder.h"

#include <string>

#include "kernels/base/check.h"

namespace lethe::audit {

ReportBuilder::ReportBuilder(absl::Span<const char* const> names, std::vector<Check>* checks)
    : checks_(checks) {
  for (const char* name : names) checks_->push_back(Check{name, CheckResult::kNotChecked, ""});
}

Check* ReportBuilder::Entry(absl::string_view name) const {
  for (Check& check : *checks_) {
    if (name == check.name) return &check;
  }
  LETHE_CHECK(false);
  return nullptr;
}

bool ReportBuilder::Set(absl::string_view name, const absl::Status& status) {
  return status.ok() ? Ok(name) : Fail(name, status.message());
}

bool ReportBuilder::Ok(absl::string_view name, absl::string_view detail) {
  Check* check = Entry(name);
  LETHE_CHECK(check->result == CheckResult::kNotChecked);
  check->result = CheckResult::kOk;
  check->detail = std::string(detail);
  return true;
}

bool ReportBuilder::Fail(absl::string_view name, absl::string_view detail) {
  Check* check = Entry(name);
  LETHE_CHECK(check->result == CheckResult::kNotChecked);
  check->result = CheckResult::kFailed;
  check->detail = std::string(detail);
  return false;
}

void ReportBuilder::Skip(absl::string_view name, absl::string_view why) {
  Entry(name)->detail = std::string(why);
}

bool ReportBuilder::IsOk(absl::string_view name) const {
  return Entry(name)->result == CheckResult::kOk;
}

void ReportBuilder::Finish() {
  for (Check& check : *checks_) {
    if (check.result == CheckResult::kNotChecked && check.detail.empty()) {
      check.detail = "an earlier check failed";
    }
  }
}

}  // namespace lethe::audit
