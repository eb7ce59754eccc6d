// Json, WriteJson, ParseJson: the small JSON of our signed formats: strings, booleans, arrays,
// objects.
//
// Equation:  canonical bytes: keys sorted bytewise, no white space, printable ASCII, '"' and '\'
//            escaped and nothing else, no numbers, no null, no repeated key.
// Shapes:    nesting at most kJsonDepthMax.
// Units:     none.
// Requires:  WriteJson: strings of printable ASCII, no key twice (LETHE_CHECK: writers validate).
// Rejects:   ParseJson: INVALID_ARGUMENT with the byte offset: any other syntax, a number, null, a
//            repeated key, too deep, bytes after the value; kCanonical: bytes that WriteJson would
//            not write. kFree takes white space, any order of keys and JSON's escapes (the result
//            must be ASCII).
// Effects:   none.
// Numerics:  none; cost O(bytes log keys).
// Threads:   compatible.
#ifndef LETHE_AUDIT_CERTIFICATE_JSON_H_
#define LETHE_AUDIT_CERTIFICATE_JSON_H_

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lethe::audit {

inline constexpr int kJsonDepthMax = 16;

struct JsonMember;

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<JsonMember>;  // in any order; WriteJson sorts

  Json() = default;
  static Json String(absl::string_view text);
  static Json Bool(bool value);
  static Json MakeArray(Array items);
  static Json MakeObject(Object members);

  // Null when the value is of another kind.
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  std::string* mutable_string() { return std::get_if<std::string>(&value_); }
  bool* mutable_boolean() { return std::get_if<bool>(&value_); }
  Array* mutable_array() { return std::get_if<Array>(&value_); }
  Object* mutable_object() { return std::get_if<Object>(&value_); }

 private:
  std::variant<std::string, bool, Array, Object> value_;
};

struct JsonMember {
  std::string key;
  Json value;
};

std::string WriteJson(const Json& value);

enum class JsonSyntax { kCanonical, kFree };
absl::StatusOr<Json> ParseJson(absl::string_view bytes, JsonSyntax syntax);

bool IsPrintableAscii(absl::string_view text);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_JSON_H_
