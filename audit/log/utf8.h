// IsNoteUtf8, HasUnicodeSpace: the character rules of C2SP signed notes.
//
// Equation:  UTF-8 as RFC 3629 has it: shortest form, no surrogates, at most U+10FFFF.
// Shapes:    none.
// Units:     none.
// Requires:  HasUnicodeSpace: text that IsNoteUtf8 accepts.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_LOG_UTF8_H_
#define LETHE_AUDIT_LOG_UTF8_H_

#include "absl/strings/string_view.h"

namespace lethe::audit {

bool IsUtf8Text(absl::string_view text);

// Valid UTF-8 without ASCII control characters other than newline.
bool IsNoteUtf8(absl::string_view text);

// A character with the Unicode property White_Space.
bool HasUnicodeSpace(absl::string_view text);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_UTF8_H_
