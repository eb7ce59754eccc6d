// UsageText: the words of a usage error.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  app has just thrown `error` from its parse.
// Rejects:   none.
// Effects:   none. Of what was typed only names of options and what stands in a command's place and
//            looks like one are repeated: everything else may be content.
// Numerics:  none.
// Threads:   owner thread.
#ifndef LETHE_CLIENT_COMMANDS_USAGE_TEXT_H_
#define LETHE_CLIENT_COMMANDS_USAGE_TEXT_H_

#include <string>

#include "CLI/CLI.hpp"

namespace lethe::client {

// One sentence, with "(try lethe session create --help)" at its end.
std::string UsageText(const CLI::ParseError& error, const CLI::App& app);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_USAGE_TEXT_H_
