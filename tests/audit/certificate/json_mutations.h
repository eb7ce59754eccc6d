// MutateJson: every single-field mutation of a JSON value, each still canonical JSON.
//
// Kinds: "change" (a string's last character, or a flag, becomes another of its alphabet), "up" and
// "down" (16-digit hex: the number's neighbours), "remove" (a member or item), "duplicate" (an
// item), "add" (an unknown member of an object). The path is as in "predicate.layers[0].kind".
// Threads: safe.
#ifndef LETHE_TESTS_AUDIT_CERTIFICATE_JSON_MUTATIONS_H_
#define LETHE_TESTS_AUDIT_CERTIFICATE_JSON_MUTATIONS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "audit/certificate/json.h"

namespace lethe::audit {

struct JsonMutation {
  std::string path;
  std::string kind;
  std::string bytes;  // the mutated document

  // Letters, digits and underscores: the name of a test case.
  std::string Name() const;
};

std::vector<JsonMutation> MutateJson(const std::string& document);

// Whether the whole text matches: '*' any characters, '?' one, "{a,b}" either. (std::regex draws
// false warnings from g++ 12 under sanitizers.)
bool MatchesGlob(absl::string_view text, absl::string_view pattern);

}  // namespace lethe::audit

#endif  // LETHE_TESTS_AUDIT_CERTIFICATE_JSON_MUTATIONS_H_
