// The program `lethe`: the command-line client of lethe-server and the offline verifier.
#include <iostream>
#include <string>
#include <vector>

#include "client/commands/color.h"
#include "client/commands/program.h"
#include <unistd.h>

int main(int argc, char** argv) {
  const lethe::client::Io io{.in = std::cin,
                             .out = std::cout,
                             .err = std::cerr,
                             .out_is_terminal = ::isatty(STDOUT_FILENO) == 1,
                             .err_is_terminal = ::isatty(STDERR_FILENO) == 1,
                             .color = lethe::client::ColorWanted()};
  return lethe::client::RunProgram(std::vector<std::string>(argv + 1, argv + argc), io);
}
