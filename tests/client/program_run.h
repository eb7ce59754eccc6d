// RunLethe: the program `lethe` in this process, with its streams captured.
// Threads: one at a time.
#ifndef LETHE_TESTS_CLIENT_PROGRAM_RUN_H_
#define LETHE_TESTS_CLIENT_PROGRAM_RUN_H_

#include <sstream>
#include <string>
#include <vector>

#include "client/commands/program.h"

namespace lethe::client {

struct ProgramRun {
  int exit_code = 0;
  std::string out;
  std::string err;
};

inline ProgramRun RunLethe(const std::vector<std::string>& arguments,
                           const std::string& standard_input = "") {
  std::istringstream in(standard_input);
  std::ostringstream out;
  std::ostringstream err;
  ProgramRun run;
  run.exit_code = RunProgram(arguments, Io{.in = in, .out = out, .err = err});
  run.out = out.str();
  run.err = err.str();
  return run;
}

}  // namespace lethe::client

#endif  // LETHE_TESTS_CLIENT_PROGRAM_RUN_H_
