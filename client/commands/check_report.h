// PrintReport, PrintSubjectReport: the report of an offline verification for a person, or with --json for a program.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   nothing.
// Effects:   writes to the output stream: a line for each check with "ok", "FAILED" or "not checked",
//            a sentence that says what the check means, and the reason; then what the record says.
// Numerics:  none.
// Threads:   owner thread.
#ifndef LETHE_CLIENT_COMMANDS_CHECK_REPORT_H_
#define LETHE_CLIENT_COMMANDS_CHECK_REPORT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "client/commands/context.h"

#include "audit/certificate/verify.h"
#include "audit/certificate/verify_subject.h"

namespace lethe::client {

void PrintReport(Context& context, const audit::VerifyReport& report);
void PrintSubjectReport(Context& context, const audit::SubjectReport& report);

// What the check of this name means, in plain words; "" for a name that is not known here.
std::string CheckMeaning(absl::string_view name);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_CHECK_REPORT_H_
