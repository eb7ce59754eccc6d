// Add*Commands: each adds one group of commands to the program `lethe`, one group a file.
//
// A command's callback runs when the command line named it; it stores the exit code in the context.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  app and context outlive the parse.
// Rejects:   see program.h.
// Effects:   see each command's --help.
// Numerics:  none.
// Threads:   owner thread.
#ifndef LETHE_CLIENT_COMMANDS_COMMANDS_H_
#define LETHE_CLIENT_COMMANDS_COMMANDS_H_

#include "CLI/CLI.hpp"
#include "client/commands/context.h"

namespace lethe::client {

void AddSessionCommands(CLI::App& app, Context& context);  // session create|get|list|delete|...
void AddSessionInputsCommands(CLI::App& session, Context& context);    // session inputs|digest
void AddSessionTransferCommands(CLI::App& session, Context& context);  // session export|import
void AddGenerateCommand(CLI::App& app, Context& context);              // generate
void AddAppendCommand(CLI::App& app, Context& context);                // append
void AddForgetCommand(CLI::App& app, Context& context);                // forget
void AddForgetSubjectCommand(CLI::App& app, Context& context);         // forget-subject
void AddJobsCommands(CLI::App& app, Context& context);      // jobs list|get|sessions|delete
void AddCertifyCommands(CLI::App& app, Context& context);   // certify, certificate get
void AddVerifyCommand(CLI::App& app, Context& context);     // verify
void AddReplayCommand(CLI::App& app, Context& context);     // replay
void AddPartitionCommand(CLI::App& app, Context& context);  // partition
void AddVectorsCommands(CLI::App& app, Context& context);   // vectors create|append|read|list|evict
void AddVectorsAppendCommand(CLI::App& vectors, Context& context);  // vectors append
void AddVectorsEvictCommand(CLI::App& vectors, Context& context);   // vectors evict
void AddSigmaCommand(CLI::App& app, Context& context);              // sigma
void AddAuditCommands(CLI::App& app, Context& context);  // audit log|records|inclusion|...
void AddAuditConsistencyCommand(CLI::App& audit, Context& context);  // audit consistency
void AddAuditExportCommands(CLI::App& audit, Context& context);      // audit export|fsck
void AddModelsCommands(CLI::App& app, Context& context);     // models list|get|tokenize|detokenize
void AddDigestCommand(CLI::App& app, Context& context);      // digest --explain
void AddTokenCommands(CLI::App& app, Context& context);      // token new
void AddDoctorCommand(CLI::App& app, Context& context);      // doctor
void AddCompletionCommand(CLI::App& app, Context& context);  // completion
void AddBenchCommand(CLI::App& app, Context& context);       // bench
void AddPaperCommand(CLI::App& app, Context& context);       // paper

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_COMMANDS_H_
