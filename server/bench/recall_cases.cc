#include "server/bench/recall_cases.h"

#include <algorithm>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "kernels/base/status_macros.h"

namespace lethe::bench {
namespace {

constexpr size_t kMaxAnswerBytes = 64;

absl::Status Wrong(absl::string_view member, absl::string_view want) {
  return absl::InvalidArgumentError(absl::StrCat(member, ": ", want));
}

absl::StatusOr<std::string> Text(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return Wrong(key, "not a string");
  return found->get<std::string>();
}

absl::StatusOr<std::vector<RecallPart>> Parts(const nlohmann::json& object) {
  const auto found = object.find("parts");
  if (found == object.end() || !found->is_array()) return Wrong("parts", "not an array");
  std::vector<RecallPart> parts;
  for (const nlohmann::json& part : *found) {
    if (!part.is_array() || part.size() != 2 || !part[0].is_string() || !part[1].is_string()) {
      return Wrong("parts", "an entry is not [text, subject]");
    }
    parts.push_back({part[0].get<std::string>(), part[1].get<std::string>()});
    if (parts.back().text.empty()) return Wrong("parts", "an entry has no text");
  }
  return parts;
}

absl::StatusOr<RecallCase> ParseCase(const std::string& line) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return absl::InvalidArgumentError("not a JSON object");
  RecallCase result;
  LETHE_ASSIGN_OR_RETURN(result.parts, Parts(object));
  LETHE_ASSIGN_OR_RETURN(result.subject, Text(object, "subject"));
  LETHE_ASSIGN_OR_RETURN(result.query, Text(object, "query"));
  LETHE_ASSIGN_OR_RETURN(result.answer, Text(object, "answer"));
  if (result.query.empty()) return Wrong("query", "empty");
  if (result.answer.empty() || result.answer.size() > kMaxAnswerBytes) {
    return Wrong("answer", absl::StrCat("not 1 to ", kMaxAnswerBytes, " bytes"));
  }
  const auto back = object.find("back");
  if (back == object.end() || !back->is_number_integer()) return Wrong("back", "not an integer");
  result.back = back->get<int64_t>();
  const bool told =
      std::any_of(result.parts.begin(), result.parts.end(),
                  [&](const RecallPart& part) { return part.subject == result.subject; });
  if (result.subject.empty() || !told) return Wrong("subject", "no part has this label");
  return result;
}

}  // namespace

absl::StatusOr<std::vector<RecallCase>> ReadRecallCases(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cases: cannot open ", path));
  std::vector<RecallCase> cases;
  for (std::string line; std::getline(file, line);) {
    absl::StatusOr<RecallCase> parsed = ParseCase(line);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("cases: line ", cases.size() + 1, ": ", parsed.status().message()));
    }
    cases.push_back(*std::move(parsed));
  }
  if (cases.empty()) return absl::InvalidArgumentError("cases: the file holds none");
  return cases;
}

}  // namespace lethe::bench
