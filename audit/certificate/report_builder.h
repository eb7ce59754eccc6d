// ReportBuilder: fills in a VerifyReport, every check of a fixed list, in order.
//
// Equation:  none.
// Shapes:    one entry per name given to the constructor.
// Units:     none.
// Requires:  names of the list, each set at most once (LETHE_CHECK).
// Rejects:   none.
// Effects:   Finish gives the checks that nobody set the reason "an earlier check failed".
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_AUDIT_CERTIFICATE_REPORT_BUILDER_H_
#define LETHE_AUDIT_CERTIFICATE_REPORT_BUILDER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/certificate/verify.h"

namespace lethe::audit {

class ReportBuilder {
 public:
  ReportBuilder(absl::Span<const char* const> names, std::vector<Check>* checks);

  // Records ok or the failure with its message; returns status.ok().
  bool Set(absl::string_view name, const absl::Status& status);
  bool Ok(absl::string_view name, absl::string_view detail = "");
  bool Fail(absl::string_view name, absl::string_view detail);
  void Skip(absl::string_view name, absl::string_view why);
  bool IsOk(absl::string_view name) const;
  void Finish();

 private:
  Check* Entry(absl::string_view name) const;
  std::vector<Check>* checks_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_REPORT_BUILDER_H_
