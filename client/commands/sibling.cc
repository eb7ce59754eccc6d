#include "client/commands/sibling.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include <unistd.h>

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

absl::Status Execute(std::string program, std::vector<std::string> arguments) {
  LETHE_ASSIGN_OR_RETURN(const std::string path, SiblingProgram(program));
  std::vector<char*> argv = {program.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  return absl::InternalError(absl::StrCat("cannot run ", path, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::string> SiblingProgram(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (self.parent_path() / name).string();
  if (error || ::access(path.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("no program ", name, " beside this one (", path, ")"));
  }
  return path;
}

void AddSiblingCommand(const SiblingCommand& sibling, CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(sibling.name, sibling.description);
  // Everything after the word, --help included, is for the program.
  command->set_help_flag();
  command->fallthrough(false);
  command->prefix_command();
  command->callback([&context, command, program = sibling.program] {
    context.out() << std::flush;
    context.Finish(Execute(program, command->remaining()));
  });
}

}  // namespace lethe::client
