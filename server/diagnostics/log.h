// LogError, LogInfo, LogDebug: the server's diagnostics on standard error, one line each.
//
// Equation:  none.
// Shapes:    a line: "2026-11-29T19:02:53Z I text".
// Units:     UTC.
// Requires:  text holds no content (prompts, answers, vocab_ids, labels), no key and no digest of a
//            session.
// Rejects:   none.
// Effects:   writes a whole line at once.
// Numerics:  none.
// Threads:   safe; the level is process-wide.
#ifndef LETHE_SERVER_DIAGNOSTICS_LOG_H_
#define LETHE_SERVER_DIAGNOSTICS_LOG_H_

#include "absl/strings/string_view.h"

namespace lethe {

enum class LogLevel { kError, kInfo, kDebug };

void SetLogLevel(LogLevel level);
void LogError(absl::string_view text);
void LogInfo(absl::string_view text);
void LogDebug(absl::string_view text);

}  // namespace lethe

#endif  // LETHE_SERVER_DIAGNOSTICS_LOG_H_
