// LogError, LogInfo, LogDebug: the server's diagnostics on standard error, one line each.
//
// Equation:  none.
// Shapes:    a line: "2026-11-29T19:02:53Z I text", or as JSON
//            {"time":"2026-11-29T19:02:53Z","level":"info","message":"text"} with further fields behind these.
// Units:     UTC.
// Requires:  text holds no content (prompts, answers, vocab_ids, labels), no key and no digest of a
//            session.
// Rejects:   none.
// Effects:   writes a whole line at once.
// Numerics:  none.
// Threads:   safe; level and format are process-wide.
#ifndef LETHE_SERVER_DIAGNOSTICS_LOG_H_
#define LETHE_SERVER_DIAGNOSTICS_LOG_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace lethe {

enum class LogLevel { kError, kInfo, kDebug };

enum class LogFormat { kText, kJson };

// What a line of JSON says beside its message, which says the same to people.
using LogFields = std::vector<std::pair<absl::string_view, std::string>>;

void SetLogLevel(LogLevel level);
void SetLogFormat(LogFormat format);
void LogError(absl::string_view text, const LogFields& fields = {});
void LogInfo(absl::string_view text);
void LogDebug(absl::string_view text, const LogFields& fields = {});

}  // namespace lethe

#endif  // LETHE_SERVER_DIAGNOSTICS_LOG_H_
