#include "client/commands/option_checks.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/message_check.h"

namespace lethe::client {
namespace {

constexpr std::array<absl::string_view, 8> kTextOptions = {
    "SESSION", "NAME", "--session", "--subject", "--request-id", "--model", "--name", "--head"};

bool IsPlainNumber(const std::string& text) {
  return (text == "0" || text[0] != '0') && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c));
         });
}

}  // namespace

CLI::Validator WholeNumber(uint64_t min, uint64_t max) {
  const auto check = [min, max](const std::string& text) {
    uint64_t value = 0;
    const bool fits = !text.empty() && IsPlainNumber(text) && absl::SimpleAtoi(text, &value) &&
                      value >= min && value <= max;
    return fits ? std::string() : absl::StrCat("want a whole number from ", min, " to ", max);
  };
  return CLI::Validator(check, "");
}

CLI::Validator Int32FromZero() { return WholeNumber(0, std::numeric_limits<int32_t>::max()); }

void RequireUtf8(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (std::find(kTextOptions.begin(), kTextOptions.end(), name) == kTextOptions.end()) continue;
    option->check(CLI::Validator(
        [](const std::string& text) {
          return IsUtf8(text) ? std::string() : std::string("want valid UTF-8");
        },
        ""));
  }
  for (CLI::App* command : app.get_subcommands({})) RequireUtf8(*command);
}

}  // namespace lethe::client
