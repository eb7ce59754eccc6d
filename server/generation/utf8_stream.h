// Utf8Stream: turns a stream of bytes, cut anywhere, into whole UTF-8 characters without losing a
// byte.
//
// Equation:  none. Well-formed sequences are those of Unicode 15, table 3-7 (no surrogates, no
//            overlong forms, nothing above U+10FFFF); an ill-formed one is replaced per maximal
//            subpart (Unicode 15, section 3.9).
// Shapes:    any number of bytes per call, 0 included.
// Units:     bytes.
// Requires:  none.
// Rejects:   none: every byte string is accepted.
// Effects:   Append returns the bytes up to the last whole character, as they are and as valid
//            UTF-8 text in which each invalid subpart is one U+FFFD, counted in num_replaced. An
//            incomplete character (up to 3 bytes that the next ones may complete) is held. Finish
//            returns what is held as raw bytes with empty text and counts it in num_incomplete: cut
//            text is told, never turned into a character. All Outputs' bytes, joined, are the bytes
//            appended.
// Numerics:  none. The state is a function of the undelivered bytes: after a Forget, Recompute
//            makes it anew.
// Threads:   compatible.
#ifndef LETHE_SERVER_GENERATION_UTF8_STREAM_H_
#define LETHE_SERVER_GENERATION_UTF8_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lethe {

class Utf8Stream {
 public:
  struct Output {
    std::string bytes;           // raw
    std::string text;            // valid UTF-8
    int64_t num_replaced = 0;    // U+FFFD put into text for invalid bytes
    int64_t num_incomplete = 0;  // Finish only: raw bytes at the end that are no whole character
  };

  Output Append(absl::string_view bytes);
  // The stream then starts anew.
  Output Finish();
  // Starts anew with the retained bytes that the client does not have yet.
  Output Recompute(absl::string_view undelivered_bytes);

  size_t num_held_bytes() const { return held_.size(); }

 private:
  std::string held_;  // a proper prefix of a well-formed sequence, or empty
};

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_UTF8_STREAM_H_
