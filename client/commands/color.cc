#include "client/commands/color.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace lethe::client {
namespace {

absl::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// ECMA-48, SGR.
absl::string_view Code(Color color) {
  switch (color) {
    case Color::kGreen:
      return "\033[32m";
    case Color::kYellow:
      return "\033[33m";
    case Color::kRed:
      return "\033[31m";
  }
  return "";
}

}  // namespace

std::string Painted(bool on, Color color, absl::string_view text) {
  return on ? absl::StrCat(Code(color), text, "\033[0m") : std::string(text);
}

bool ColorWanted() {
  return Variable("NO_COLOR").empty() && !Variable("TERM").empty() && Variable("TERM") != "dumb";
}

}  // namespace lethe::client
