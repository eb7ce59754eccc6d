// Goal: statements, summaries and openings from outside never crash, and what is accepted has one text.
// Method: parse, write, compare.
#include "audit/certificate/opening.h"
#include "audit/certificate/statement.h"
#include "audit/certificate/subject_summary.h"
#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace lethe::fuzz {

void FuzzStatement(absl::string_view bytes) {
  if (const auto statement = audit::ParseStatement(bytes); statement.ok()) {
    const auto written = audit::WriteStatement(*statement);
    // Sequence and scope are checked by name in a verification, not by the parser.
    const bool complete =
        audit::CheckSequenceFields(*statement).ok() && audit::CheckScopeFields(*statement).ok();
    LETHE_CHECK(written.ok() == complete);
    LETHE_CHECK(!written.ok() || *written == bytes);
  }
  if (const auto opening = audit::ParseOpening(bytes); opening.ok()) {
    LETHE_CHECK(audit::WriteOpening(*opening) == bytes);
  }
  if (const auto summary = audit::ParseSubjectSummary(bytes); summary.ok()) {
    LETHE_CHECK(audit::WriteSubjectSummary(*summary).value() == bytes);
  }
  if (const auto opening = audit::ParseSubjectOpening(bytes); opening.ok()) {
    LETHE_CHECK(audit::WriteSubjectOpening(*opening).value() == bytes);
  }
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzStatement)
