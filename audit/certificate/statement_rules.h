// CheckStatementFields: the rules that every statement keeps field by field, when written and when
// read.
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

#include "audit/certificate/statement.h"

namespace lethe::audit {

inline constexpr size_t kTextBytesMax = 256;

absl::Status CheckStatementFields(const Statement& statement);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_STATEMENT_RULES_H_
