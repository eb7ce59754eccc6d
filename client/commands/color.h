// Painted, ColorWanted: a word in colour where that helps a person to see what matters.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   nothing.
// Effects:   none. Colour is never the only sign: the word itself says the same.
// Numerics:  none.
// Threads:   safe, as long as nobody changes the environment.
#ifndef LETHE_CLIENT_COMMANDS_COLOR_H_
#define LETHE_CLIENT_COMMANDS_COLOR_H_

#include <string>

#include "absl/strings/string_view.h"

namespace lethe::client {

enum class Color { kGreen, kYellow, kRed };

// The text alone when `on` is false.
std::string Painted(bool on, Color color, absl::string_view text);

// What the environment says: not where NO_COLOR is set to anything (no-color.org), nor where TERM is "dumb" or
// missing. Whether a stream is a terminal is for the caller to know.
bool ColorWanted();

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_COLOR_H_
