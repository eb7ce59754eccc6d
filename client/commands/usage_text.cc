#include "client/commands/usage_text.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace lethe::client {
namespace {

constexpr size_t kCommandLengthMax = 24;
// Two slips of the finger.
constexpr size_t kCloseDistanceMax = 2;

// The innermost command that was recognised.
const CLI::App& Innermost(const CLI::App& app) {
  const CLI::App* current = &app;
  while (!current->get_subcommands().empty()) {
    current = current->get_subcommands().front();
  }
  return *current;
}

// "lethe session create".
std::string CommandPath(const CLI::App& app) {
  std::string path = "lethe";
  const CLI::App* current = &app;
  while (!current->get_subcommands().empty()) {
    current = current->get_subcommands().front();
    absl::StrAppend(&path, " ", current->get_name());
  }
  return path;
}

// Levenshtein's distance.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

bool LooksLikeACommand(const std::string& word) {
  return !word.empty() && word.size() <= kCommandLengthMax &&
         std::all_of(word.begin(), word.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
         });
}

// The names of its commands; groups of options are nameless commands to CLI11.
std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_name().empty()) names.push_back(command->get_name());
  }
  return names;
}

// Those that begin with the word, and those nearest to it.
std::vector<std::string> CloseNames(const std::vector<std::string>& names,
                                    const std::string& word) {
  size_t nearest = kCloseDistanceMax;
  for (const std::string& name : names) nearest = std::min(nearest, Distance(word, name));
  std::vector<std::string> close;
  for (const std::string& name : names) {
    const bool begins = word.size() >= 3 && absl::StartsWith(name, word);
    if (begins || Distance(word, name) == nearest) close.push_back(name);
  }
  return close;
}

std::string UnknownCommandText(const std::vector<std::string>& names, const std::string& word) {
  const std::vector<std::string> close = CloseNames(names, word);
  const std::string named =
      LooksLikeACommand(word) ? absl::StrCat("unknown command '", word, "'") : "unknown command";
  return close.empty() ? absl::StrCat(named, "; there are: ", absl::StrJoin(names, ", "))
                       : absl::StrCat(named, "; did you mean ", absl::StrJoin(close, " or "), "?");
}

std::string UnknownOptionsText(const std::vector<std::string>& words) {
  std::string options;
  for (const std::string& word : words) {
    if (word.size() > 1 && word[0] == '-') {
      absl::StrAppend(&options, options.empty() ? "" : " ", word.substr(0, word.find('=')));
    }
  }
  return options.empty() ? "unexpected words after the command (a text with spaces needs quotes)"
                         : absl::StrCat("unknown option ", options);
}

// CLI11's sentences end with the value or begin with it.
std::string ConversionText(absl::string_view sentence) {
  if (absl::ConsumePrefix(&sentence, "Could not convert: ")) {
    return absl::StrCat(sentence.substr(0, sentence.find(" = ")), ": cannot read its value");
  }
  return absl::StartsWith(sentence, "The value ") ? "cannot read an option's value"
                                                  : std::string(sentence);
}

std::string Sentence(const CLI::ParseError& error, const CLI::App& app) {
  const std::vector<std::string> rest = app.remaining(true);
  const std::vector<std::string> names = CommandNames(Innermost(app));
  if (!names.empty() && !rest.empty() && rest[0][0] != '-') {
    return UnknownCommandText(names, rest[0]);
  }
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) {
    return ConversionText(error.what());
  }
  // CLI11 would repeat unexpected words.
  return dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr ? error.what()
                                                                  : UnknownOptionsText(rest);
}

}  // namespace

std::string UsageText(const CLI::ParseError& error, const CLI::App& app) {
  return absl::StrCat(Sentence(error, app), " (try ", CommandPath(app), " --help)");
}

}  // namespace lethe::client
