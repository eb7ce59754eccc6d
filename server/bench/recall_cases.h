// RecallCase, ReadRecallCases: a session's text with records in it, and a question about one of them.
//
// Shapes:   a file holds one JSON object per line: "parts": [[text, subject], …] in the order in
//           which they are told (subject "" for none), "subject": whose record is asked for,
//           "query", "answer" (the rest of the record, from the blank to the full stop), "back":
//           bytes from the end of the record to the end of the query. Written by
//           train/recall_cases.py.
// Units:    bytes, which are lethe-tiny's tokens.
// Requires: none.
// Rejects:  NOT_FOUND: no such file. INVALID_ARGUMENT naming line and member: not such an object, no
//           part with the subject, an answer that is empty or longer than 64 bytes.
// Effects:  none.
// Numerics: none.
// Threads:  compatible.
#ifndef LETHE_SERVER_BENCH_RECALL_CASES_H_
#define LETHE_SERVER_BENCH_RECALL_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lethe::bench {

struct RecallPart {
  std::string text;
  std::string subject;
};

struct RecallCase {
  std::vector<RecallPart> parts;
  std::string subject;
  std::string query;
  std::string answer;
  int64_t back = 0;
};

absl::StatusOr<std::vector<RecallCase>> ReadRecallCases(const std::string& path);

}  // namespace lethe::bench

#endif  // LETHE_SERVER_BENCH_RECALL_CASES_H_
