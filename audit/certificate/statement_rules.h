// CheckStatementFields: the rules that every statement keeps field by field, when written and when
// read. CheckText, CheckTime, CheckSet: those of one field.
//
// Equation:  none.
// Shapes:    nonce 16 to 32 bytes; texts at most kTextBytesMax.
// Units:     none.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT naming the field.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_STATEMENT_RULES_H_
#define LETHE_AUDIT_CERTIFICATE_STATEMENT_RULES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "audit/certificate/statement.h"

namespace lethe::audit {

inline constexpr size_t kTextBytesMax = 256;

absl::Status CheckStatementFields(const Statement& statement);
absl::Status CheckText(absl::string_view field, absl::string_view text);
// RFC 3339 in UTC with whole seconds, as 2026-09-20T12:34:56Z.
absl::Status CheckTime(absl::string_view field, absl::string_view text);
// The empty tree's root exactly when count is 0.
absl::Status CheckSet(absl::string_view field, const CommittedSet& set);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_STATEMENT_RULES_H_
