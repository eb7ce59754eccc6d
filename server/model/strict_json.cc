#include "server/model/strict_json.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "kernels/base/number_text.h"
#include "kernels/base/status_macros.h"

namespace lethe {

using nlohmann::json;

namespace {

// A key from the file, shortened and made printable: it goes into an error message.
std::string Printable(absl::string_view key) {
  std::string text;
  for (const char c : key.substr(0, 64)) {
    const bool plain = c > ' ' && c < 127 && c != '"' && c != '\\';
    text.push_back(plain ? c : '?');
  }
  return text;
}

absl::Status Bad(absl::string_view path, absl::string_view accepted) {
  return absl::InvalidArgumentError(absl::StrCat(path, " must be ", accepted));
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

absl::StatusOr<json> ParseStrictJson(absl::string_view text, absl::string_view what) {
  std::vector<std::set<std::string>> open_keys;  // one set per open object
  std::string duplicate;
  const auto watch = [&](int /*depth*/, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open_keys.emplace_back();
    if (event == json::parse_event_t::object_end) open_keys.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_keys.back().insert(key).second && duplicate.empty()) {
        duplicate = absl::StrCat("\"", Printable(key), "\"");
      }
    }
    return true;
  };
  json value = json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (value.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is not well-formed JSON"));
  }
  if (!duplicate.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " has the key ", duplicate, " twice"));
  }
  return value;
}

absl::StatusOr<ObjectReader> ObjectReader::Open(const json& value, std::string path) {
  if (!value.is_object()) return Bad(path.empty() ? "the document" : path, "a JSON object");
  return ObjectReader(value, std::move(path));
}

std::string ObjectReader::PathOf(absl::string_view key) const {
  return path_.empty() ? std::string(key) : absl::StrCat(path_, ".", key);
}

absl::StatusOr<const json*> ObjectReader::Member(const char* key) {
  const auto found = value_->find(key);
  if (found == value_->end()) {
    return absl::InvalidArgumentError(absl::StrCat(PathOf(key), " is missing"));
  }
  read_.insert(key);
  return &*found;
}

absl::StatusOr<int64_t> ObjectReader::Int(const char* key, int64_t min, int64_t max) {
  LETHE_ASSIGN_OR_RETURN(const json* member, Member(key));
  const std::string accepted = absl::StrCat("an integer in ", min, " ... ", max);
  if (!member->is_number_integer()) return Bad(PathOf(key), accepted);
  if (member->is_number_unsigned() && member->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return Bad(PathOf(key), accepted);
  }
  const auto value = member->get<int64_t>();
  if (value < min || value > max) return Bad(PathOf(key), accepted);
  return value;
}

absl::StatusOr<int64_t> ObjectReader::MultipleOf8(const char* key, int64_t min, int64_t max) {
  absl::StatusOr<int64_t> value = Int(key, min, max);
  if (value.ok() && *value % 8 == 0) return value;
  if (!value.ok() && value_->find(key) == value_->end()) return value;
  return Bad(PathOf(key), absl::StrCat("a multiple of 8 in ", min, " ... ", max));
}

absl::StatusOr<double> ObjectReader::Real(const char* key, double min, double max) {
  LETHE_ASSIGN_OR_RETURN(const json* member, Member(key));
  const std::string accepted =
      absl::StrCat("a number in ", NumberText(min), " ... ", NumberText(max));
  if (!member->is_number()) return Bad(PathOf(key), accepted);
  const auto value = member->get<double>();
  if (!(value >= min && value <= max)) return Bad(PathOf(key), accepted);
  return value;
}

absl::StatusOr<bool> ObjectReader::Bool(const char* key) {
  LETHE_ASSIGN_OR_RETURN(const json* member, Member(key));
  if (!member->is_boolean()) return Bad(PathOf(key), "true or false");
  return member->get<bool>();
}

absl::StatusOr<size_t> ObjectReader::OneOf(const char* key,
                                           const std::vector<std::string>& accepted) {
  LETHE_ASSIGN_OR_RETURN(const json* member, Member(key));
  if (member->is_string()) {
    const auto& value = member->get_ref<const std::string&>();
    const auto found = std::find(accepted.begin(), accepted.end(), value);
    if (found != accepted.end()) return static_cast<size_t>(found - accepted.begin());
  }
  return Bad(PathOf(key), absl::StrCat("one of \"", absl::StrJoin(accepted, "\", \""), "\""));
}

absl::StatusOr<std::string> ObjectReader::Name(const char* key, size_t max_length) {
  LETHE_ASSIGN_OR_RETURN(const json* member, Member(key));
  if (member->is_string()) {
    const auto& value = member->get_ref<const std::string&>();
    if (!value.empty() && value.size() <= max_length &&
        std::all_of(value.begin(), value.end(), IsNameCharacter)) {
      return value;
    }
  }
  return Bad(PathOf(key),
             absl::StrCat("1 ... ", max_length, " letters, digits, dots, hyphens or underscores"));
}

absl::StatusOr<std::vector<double>> ObjectReader::Reals(const char* key, int64_t count, double min,
                                                        double max) {
  LETHE_ASSIGN_OR_RETURN(const json* member, Member(key));
  const absl::Status bad =
      Bad(PathOf(key), absl::StrCat("an array of ", count, " numbers in ", NumberText(min), " ... ",
                                    NumberText(max)));
  if (!member->is_array() || member->size() != static_cast<size_t>(count)) return bad;
  std::vector<double> values;
  for (const json& element : *member) {
    if (!element.is_number()) return bad;
    values.push_back(element.get<double>());
    if (!(values.back() >= min && values.back() <= max)) return bad;
  }
  return values;
}

absl::StatusOr<const json*> ObjectReader::Array(const char* key, size_t min_size, size_t max_size) {
  LETHE_ASSIGN_OR_RETURN(const json* member, Member(key));
  if (!member->is_array() || member->size() < min_size || member->size() > max_size) {
    return Bad(PathOf(key), absl::StrCat("an array of ", min_size, " ... ", max_size, " objects"));
  }
  return member;
}

absl::Status ObjectReader::Finish() const {
  for (const auto& [key, value] : value_->items()) {
    if (read_.count(key) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(PathOf(Printable(key)), " is not a known key"));
    }
  }
  return absl::OkStatus();
}

}  // namespace lethe
