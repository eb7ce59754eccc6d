// lethe bench, lethe paper: hand the rest of the line to the programs lethe-bench and lethe-paper.
#include "client/commands/commands.h"
#include "client/commands/sibling.h"

namespace lethe::client {

void AddBenchCommand(CLI::App& app, Context& context) {
  AddSiblingCommand(
      {"bench", "Measure speed (runs lethe-bench; lethe bench --help for more)", "lethe-bench"},
      app, context);
}

void AddPaperCommand(CLI::App& app, Context& context) {
  AddSiblingCommand(
      {"paper", "Repeat the papers' experiments (runs lethe-paper; lethe paper --list names them)",
       "lethe-paper"},
      app, context);
}

}  // namespace lethe::client
