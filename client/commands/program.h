// RunProgram: the program `lethe` as a function.
//
// Equation:  none.
// Shapes:    arguments without the program's name.
// Units:     none.
// Requires:  none.
// Rejects:   wrong usage: exit code 2 and one line that says what is wrong; it repeats an option's
//            name but never a positional word, which may be a piece of a prompt.
// Effects:   as the command that the arguments name.
// Numerics:  none.
// Threads:   one at a time.
#ifndef LETHE_CLIENT_COMMANDS_PROGRAM_H_
#define LETHE_CLIENT_COMMANDS_PROGRAM_H_

#include <string>
#include <vector>

#include "client/commands/context.h"

namespace lethe::client {

// Exit code: 0 done, 1 refused by the server or unreachable, 2 wrong usage, 3 verification failed.
int RunProgram(const std::vector<std::string>& arguments, const Io& io);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_PROGRAM_H_
