// AddLimitOptions, SetMemoryDefaults: the options of server/limits, and the defaults that follow from the machine's memory.
//
// Equation:  resident_mib: half of the memory that the process may use, at most 4096; stored_input_mib: a sixteenth of that, at
//            most 256.
// Shapes:    none.
// Units:     MiB.
// Requires:  the options outlive app.
// Rejects:   as ParseOptions.
// Effects:   SetMemoryDefaults reads the machine's memory and the control group's limit of it.
// Numerics:  none.
// Threads:   one thread.
#ifndef LETHE_SERVER_LIMIT_OPTIONS_H_
#define LETHE_SERVER_LIMIT_OPTIONS_H_

#include "server/options.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lethe {

void AddLimitOptions(CLI::App* app, Limits* limits);

// Before the command line is read.
void SetMemoryDefaults(ServerOptions* options);

}  // namespace lethe

#endif  // LETHE_SERVER_LIMIT_OPTIONS_H_
