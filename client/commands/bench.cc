// lethe bench: hands the rest of the line to the program lethe-bench.
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/sibling.h"
#include <unistd.h>

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

absl::Status Bench(std::vector<std::string> arguments) {
  LETHE_ASSIGN_OR_RETURN(const std::string path, SiblingProgram("lethe-bench"));
  std::vector<char*> argv;
  std::string name = "lethe-bench";
  argv.push_back(name.data());
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  return absl::InternalError(absl::StrCat("cannot run ", path, ": ", std::strerror(errno)));
}

}  // namespace

void AddBenchCommand(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure speed (runs lethe-bench; lethe bench --help for more)");
  // Everything after the word, --help included, is for lethe-bench.
  command->set_help_flag();
  command->fallthrough(false);
  command->prefix_command();
  command->callback([&context, command] {
    context.out() << std::flush;
    context.Finish(Bench(command->remaining()));
  });
}

}  // namespace lethe::client
