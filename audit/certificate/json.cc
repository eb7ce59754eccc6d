#include "audit/certificate/json.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

void AppendString(absl::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') out->push_back('\\');
    out->push_back(c);
  }
  out->push_back('"');
}

void AppendJson(const Json& value, std::string* out) {
  if (const std::string* text = value.string()) {
    LETHE_CHECK(IsPrintableAscii(*text));
    AppendString(*text, out);
  } else if (const bool* flag = value.boolean()) {
    out->append(*flag ? "true" : "false");
  } else if (const Json::Array* items = value.array()) {
    out->push_back('[');
    for (size_t i = 0; i < items->size(); ++i) {
      if (i > 0) out->push_back(',');
      AppendJson((*items)[i], out);
    }
    out->push_back(']');
  } else {
    std::vector<const JsonMember*> members;
    for (const JsonMember& member : *value.object()) members.push_back(&member);
    std::sort(members.begin(), members.end(),
              [](const JsonMember* a, const JsonMember* b) { return a->key < b->key; });
    out->push_back('{');
    for (size_t i = 0; i < members.size(); ++i) {
      LETHE_CHECK(i == 0 || members[i - 1]->key != members[i]->key);
      LETHE_CHECK(IsPrintableAscii(members[i]->key));
      if (i > 0) out->push_back(',');
      AppendString(members[i]->key, out);
      out->push_back(':');
      AppendJson(members[i]->value, out);
    }
    out->push_back('}');
  }
}

class Parser {
 public:
  Parser(absl::string_view bytes, JsonSyntax syntax) : bytes_(bytes), syntax_(syntax) {}

  absl::StatusOr<Json> ParseDocument() {
    LETHE_ASSIGN_OR_RETURN(Json value, ParseValue(0));
    SkipSpace();
    if (position_ != bytes_.size()) return Error("bytes after the value");
    return value;
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("JSON: byte ", position_, ": ", what));
  }

  void SkipSpace() {
    if (syntax_ == JsonSyntax::kCanonical) return;
    while (position_ < bytes_.size() &&
           absl::string_view(" \t\r\n").find(bytes_[position_]) != absl::string_view::npos) {
      ++position_;
    }
  }

  // Takes c, with white space before it, if it is next.
  bool TakeChar(char c) {
    SkipSpace();
    if (position_ == bytes_.size() || bytes_[position_] != c) return false;
    ++position_;
    return true;
  }

  bool TakeWord(absl::string_view word) {
    if (bytes_.substr(position_, word.size()) != word) return false;
    position_ += word.size();
    return true;
  }

  absl::StatusOr<Json> ParseValue(int depth) {
    if (depth > kJsonDepthMax) return Error("nested too deeply");
    SkipSpace();
    if (position_ == bytes_.size()) return Error("ends before a value");
    if (bytes_[position_] == '"') {
      LETHE_ASSIGN_OR_RETURN(const std::string text, ParseString());
      return Json::String(text);
    }
    if (TakeWord("true")) return Json::Bool(true);
    if (TakeWord("false")) return Json::Bool(false);
    if (TakeChar('[')) return ParseArray(depth);
    if (TakeChar('{')) return ParseObject(depth);
    return Error("want a string, boolean, array or object (no numbers, no null)");
  }

  absl::StatusOr<Json> ParseArray(int depth) {
    Json::Array items;
    if (TakeChar(']')) return Json::MakeArray({});
    do {
      LETHE_ASSIGN_OR_RETURN(Json item, ParseValue(depth + 1));
      items.push_back(std::move(item));
    } while (TakeChar(','));
    if (!TakeChar(']')) return Error("want ',' or ']'");
    return Json::MakeArray(std::move(items));
  }

  absl::StatusOr<Json> ParseObject(int depth) {
    Json::Object members;
    if (TakeChar('}')) return Json::MakeObject({});
    do {
      SkipSpace();
      LETHE_ASSIGN_OR_RETURN(std::string key, ParseString());
      if (!TakeChar(':')) return Error("want ':'");
      LETHE_ASSIGN_OR_RETURN(Json value, ParseValue(depth + 1));
      members.push_back({std::move(key), std::move(value)});
    } while (TakeChar(','));
    if (!TakeChar('}')) return Error("want ',' or '}'");
    std::vector<absl::string_view> keys;
    for (const JsonMember& member : members) keys.push_back(member.key);
    std::sort(keys.begin(), keys.end());
    if (std::adjacent_find(keys.begin(), keys.end()) != keys.end())
      return Error("a key is repeated");
    return Json::MakeObject(std::move(members));
  }

  absl::StatusOr<std::string> ParseString() {
    if (position_ == bytes_.size() || bytes_[position_] != '"') return Error("want a string");
    ++position_;
    std::string text;
    while (true) {
      if (position_ == bytes_.size()) return Error("ends within a string");
      const char c = bytes_[position_];
      if (c == '"') break;
      if (!IsPrintableAscii(absl::string_view(&c, 1))) return Error("want printable ASCII");
      ++position_;
      if (c != '\\') {
        text.push_back(c);
        continue;
      }
      LETHE_ASSIGN_OR_RETURN(const char escaped, ParseEscape());
      text.push_back(escaped);
    }
    ++position_;
    return text;
  }

  // What follows a backslash. The canonical form's check by writing again refuses needless escapes.
  absl::StatusOr<char> ParseEscape() {
    if (position_ == bytes_.size()) return Error("ends within a string");
    const char c = bytes_[position_++];
    if (c == '"' || c == '\\' || c == '/') return c;
    if (c != 'u') return Error("want an escape of a printable character");
    int code_point = 0;
    for (int i = 0; i < 4; ++i) {
      const absl::string_view digits = "0123456789abcdef";
      const char digit = position_ < bytes_.size() ? bytes_[position_] : ' ';
      const size_t value =
          digits.find(static_cast<char>(digit >= 'A' && digit <= 'F' ? digit + 32 : digit));
      if (value == absl::string_view::npos) return Error("want four hex digits");
      code_point = code_point * 16 + static_cast<int>(value);
      ++position_;
    }
    if (code_point < 0x20 || code_point > 0x7e) return Error("want printable ASCII");
    return static_cast<char>(code_point);
  }

  const absl::string_view bytes_;
  const JsonSyntax syntax_;
  size_t position_ = 0;
};

}  // namespace

Json Json::String(absl::string_view text) {
  Json json;
  json.value_.emplace<std::string>(text);
  return json;
}

Json Json::Bool(bool value) {
  Json json;
  json.value_.emplace<bool>(value);
  return json;
}

Json Json::MakeArray(Array items) {
  Json json;
  json.value_.emplace<Array>(std::move(items));
  return json;
}

Json Json::MakeObject(Object members) {
  Json json;
  json.value_.emplace<Object>(std::move(members));
  return json;
}

std::string WriteJson(const Json& value) {
  std::string out;
  AppendJson(value, &out);
  return out;
}

absl::StatusOr<Json> ParseJson(absl::string_view bytes, JsonSyntax syntax) {
  LETHE_ASSIGN_OR_RETURN(Json value, Parser(bytes, syntax).ParseDocument());
  if (syntax == JsonSyntax::kCanonical && WriteJson(value) != bytes) {
    return absl::InvalidArgumentError("JSON: not in canonical form");
  }
  return value;
}

bool IsPrintableAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c <= 0x7e; });
}

}  // namespace lethe::audit
