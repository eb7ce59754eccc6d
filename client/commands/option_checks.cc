#include "client/commands/option_checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/message_check.h"

namespace lethe::client {
namespace {

constexpr std::array<absl::string_view, 11> kTextOptions = {
    "SESSION",      "NAME",    "LABEL",  "--session", "--subject", "--label",
    "--request-id", "--model", "--name", "--head",    "--replace"};
constexpr std::array<absl::string_view, 14> kNeverEmpty = {
    "--subject", "--nonce",  "--trust",       "--out",     "--values", "--export",  "--inputs",
    "--key",     "--server", "--certificate", "--session", "--label",  "--replace", "--label-file"};
// Commands whose words another program reads.
constexpr std::array<absl::string_view, 2> kHandedOn = {"bench", "paper"};

template <size_t kSize>
bool Contains(const std::array<absl::string_view, kSize>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsPlainNumber(const std::string& text) {
  return !text.empty() && (text == "0" || text[0] != '0') &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
}

bool IsHost(absl::string_view host) {
  // A colon in a host is an IPv6 address's, which stands in brackets.
  if (absl::StrContains(host, ":")) return host.front() == '[' && host.back() == ']';
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return c != '/' && absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
}

// Whether an option of this name, of `app` or of a command in it, takes a value.
bool TakesAValue(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->check_lname(name) && option->get_items_expected_max() > 0) return true;
  }
  const std::vector<const CLI::App*> commands = app.get_subcommands({});
  return std::any_of(commands.begin(), commands.end(),
                     [&name](const CLI::App* command) { return TakesAValue(*command, name); });
}

}  // namespace

CLI::Validator WholeNumber(uint64_t min, uint64_t max) {
  const auto check = [min, max](const std::string& text) {
    uint64_t value = 0;
    const bool fits =
        IsPlainNumber(text) && absl::SimpleAtoi(text, &value) && value >= min && value <= max;
    return fits ? std::string() : absl::StrCat("want a whole number from ", min, " to ", max);
  };
  return CLI::Validator(check, "");
}

CLI::Validator Int32FromZero(const std::string& max) {
  const auto check = [max](const std::string& text) {
    int32_t value = 0;
    return IsPlainNumber(text) && absl::SimpleAtoi(text, &value)
               ? std::string()
               : absl::StrCat("want a whole number from 0 to ", max);
  };
  return CLI::Validator(check, "");
}

CLI::Validator Number(const std::string& range, double min, double max) {
  const auto check = [range, min, max](const std::string& text) {
    double value = 0;
    const bool is_hex = text.find_first_of("xX") != std::string::npos;
    const bool fits = !is_hex && absl::SimpleAtod(text, &value) && std::isfinite(value) &&
                      value >= min && value <= max;
    return fits ? std::string() : absl::StrCat("want a number ", range);
  };
  return CLI::Validator(check, "");
}

void CheckOptionTexts(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (Contains(kTextOptions, name)) {
      option->check(CLI::Validator(
          [](const std::string& text) {
            return IsUtf8(text) ? std::string() : std::string("want valid UTF-8");
          },
          ""));
    }
    if (Contains(kNeverEmpty, name)) {
      option->check(CLI::Validator(
          [](const std::string& text) {
            return text.empty() ? std::string("want a value, not nothing (an unset variable?)")
                                : std::string();
          },
          ""));
    }
  }
  for (CLI::App* command : app.get_subcommands({})) CheckOptionTexts(*command);
}

absl::Status CheckAddress(absl::string_view option, const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon != std::string::npos && IsHost(address.substr(0, colon)) &&
      IsPlainNumber(address.substr(colon + 1)) &&
      absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 1 && port <= 65535) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      option, ": want HOST:PORT with a port of 1 to 65535, like 127.0.0.1:7070 or [::1]:7070"));
}

std::vector<std::string> SplitEmptyValues(const CLI::App& app,
                                          const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  bool is_value = false;  // of the option before it
  bool in_command = false;
  for (auto word = arguments.begin(); word != arguments.end(); ++word) {
    const bool is_option = !is_value && absl::StartsWith(*word, "--");
    // What follows these is not ours.
    if (!is_value && (*word == "--" || (Contains(kHandedOn, *word) && !in_command))) {
      words.insert(words.end(), word, arguments.end());
      break;
    }
    in_command = in_command || (!is_value && !is_option);
    const std::string name = is_option ? word->substr(2, word->find('=') - 2) : "";
    const bool takes_a_value = is_option && TakesAValue(app, name);
    if (takes_a_value && absl::EndsWith(*word, "=") && word->size() == name.size() + 3) {
      words.push_back(absl::StrCat("--", name));
      words.emplace_back();
    } else {
      words.push_back(*word);
    }
    is_value = takes_a_value && word->size() == name.size() + 2;
  }
  return words;
}

}  // namespace lethe::client
