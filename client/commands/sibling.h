// SiblingProgram, AddSiblingCommand: a program that lies beside this one, and a command that hands the
// rest of the line to it.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  AddSiblingCommand: app and context outlive the parse.
// Rejects:   NOT_FOUND when no executable file of that name lies there; the command then fails with it.
// Effects:   the command replaces this process.
// Numerics:  none.
// Threads:   SiblingProgram safe; AddSiblingCommand owner thread.
#ifndef LETHE_CLIENT_COMMANDS_SIBLING_H_
#define LETHE_CLIENT_COMMANDS_SIBLING_H_

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "client/commands/context.h"

namespace lethe::client {

absl::StatusOr<std::string> SiblingProgram(const std::string& name);

struct SiblingCommand {
  std::string name;
  std::string description;
  std::string program;
};
void AddSiblingCommand(const SiblingCommand& sibling, CLI::App& app, Context& context);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_SIBLING_H_
