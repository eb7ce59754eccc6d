#include "tests/audit/certificate/json_mutations.h"

#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "kernels/base/check.h"

namespace lethe::audit {
namespace {

char OtherCharacter(char c) {
  if (c == 'f') return 'e';  // stays a hex digit
  if (c == '9') return '8';  // stays a decimal digit
  if (std::isalnum(static_cast<unsigned char>(c)) != 0) return static_cast<char>(c + 1);
  return 'x';
}

bool IsHex(const std::string& text) {
  return text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

class Mutator {
 public:
  explicit Mutator(Json root) : root_(std::move(root)) {}

  std::vector<JsonMutation> Run() {
    Visit(&root_, "");
    return std::move(mutations_);
  }

 private:
  void Record(const std::string& path, const std::string& kind) {
    mutations_.push_back({path, kind, WriteJson(root_)});
  }

  // Changes the value in place, writes the document, and puts the old value back.
  void Try(Json* node, const Json& value, const std::string& path, const std::string& kind) {
    const Json old = *node;
    *node = value;
    Record(path, kind);
    *node = old;
  }

  void VisitString(Json* node, const std::string& path) {
    const std::string text = *node->string();
    if (text.size() == 16 && IsHex(text)) {
      const unsigned long long bits = std::stoull(text, nullptr, 16);
      if (bits != 0)
        Try(node, Json::String(absl::StrCat(absl::Hex(bits - 1, absl::kZeroPad16))), path, "down");
      Try(node, Json::String(absl::StrCat(absl::Hex(bits + 1, absl::kZeroPad16))), path, "up");
      return;
    }
    std::string changed = text;
    if (changed.empty()) {
      changed.push_back('x');
    } else {
      changed.back() = OtherCharacter(changed.back());
    }
    Try(node, Json::String(changed), path, "change");
  }

  void VisitArray(Json* node, const std::string& path) {
    const size_t size = node->array()->size();
    for (size_t i = 0; i < size; ++i) {
      const std::string item_path = absl::StrCat(path, "[", i, "]");
      Json::Array without = *node->array();
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      Try(node, Json::MakeArray(without), item_path, "remove");
      Json::Array twice = *node->array();
      const Json item = twice[i];
      twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(i), item);
      Try(node, Json::MakeArray(twice), item_path, "duplicate");
      Visit(&(*node->mutable_array())[i], item_path);
    }
  }

  void VisitObject(Json* node, const std::string& path) {
    const std::string prefix = absl::StrCat(path, path.empty() ? "" : ".");
    Json::Object more = *node->object();
    more.push_back({"zzz", Json::String("zzz")});
    Try(node, Json::MakeObject(more), prefix + "zzz", "add");
    const size_t size = node->object()->size();
    for (size_t i = 0; i < size; ++i) {
      const std::string member_path = prefix + (*node->object())[i].key;
      Json::Object without = *node->object();
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      Try(node, Json::MakeObject(without), member_path, "remove");
      Visit(&(*node->mutable_object())[i].value, member_path);
    }
  }

  void Visit(Json* node, const std::string& path) {
    if (node->string() != nullptr) {
      VisitString(node, path);
    } else if (node->boolean() != nullptr) {
      Try(node, Json::Bool(!*node->boolean()), path, "change");
    } else if (node->array() != nullptr) {
      VisitArray(node, path);
    } else {
      VisitObject(node, path);
    }
  }

  Json root_;
  std::vector<JsonMutation> mutations_;
};

}  // namespace

std::string JsonMutation::Name() const {
  std::string name;
  for (const char c : path + "_" + kind) {
    name.push_back(std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_');
  }
  return name;
}

bool MatchesGlob(absl::string_view text, absl::string_view pattern) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    for (size_t skip = 0; skip <= text.size(); ++skip) {
      if (MatchesGlob(text.substr(skip), pattern.substr(1))) return true;
    }
    return false;
  }
  if (pattern[0] == '{') {
    const size_t end = pattern.find('}');
    for (const absl::string_view choice : absl::StrSplit(pattern.substr(1, end - 1), ',')) {
      if (MatchesGlob(text, absl::StrCat(choice, pattern.substr(end + 1)))) return true;
    }
    return false;
  }
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
         MatchesGlob(text.substr(1), pattern.substr(1));
}

std::vector<JsonMutation> MutateJson(const std::string& document) {
  absl::StatusOr<Json> root = ParseJson(document, JsonSyntax::kFree);
  LETHE_CHECK(root.ok());
  return Mutator(*std::move(root)).Run();
}

}  // namespace lethe::audit
