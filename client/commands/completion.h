// CompletionScript: what a shell needs to complete the words of `lethe`, made from the program's own commands and options.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  `app` has all its commands and options.
// Rejects:   nothing.
// Effects:   none. The script asks neither a server nor this program: it completes commands, options and
//            the values of options that take one of a few words; file names elsewhere.
// Numerics:  none.
// Threads:   owner thread of `app`.
#ifndef LETHE_CLIENT_COMMANDS_COMPLETION_H_
#define LETHE_CLIENT_COMMANDS_COMPLETION_H_

#include <string>

#include "CLI/CLI.hpp"

namespace lethe::client {

enum class Shell { kBash, kZsh };

std::string CompletionScript(const CLI::App& app, Shell shell);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_COMPLETION_H_
