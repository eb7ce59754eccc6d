// GenerateToEnd: a Generate whose stream goes on when it breaks.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   what Client::Generate returns; OutputError when the output stream takes no more.
// Effects:   prints every event. A request with a request_id that is remembered, whose stream has begun and then breaks
//            (UNAVAILABLE) or is ended by the server's shutdown, is repeated with the id of the last token, up to
//            kGenerateRetries times without a new token in between, after 1, 3 and 9 s; text is printed once. When that
//            is of no use a line says how to go on later.
// Numerics:  none.
// Threads:   owner thread; sleeps.
#ifndef LETHE_CLIENT_COMMANDS_GENERATION_RETRIES_H_
#define LETHE_CLIENT_COMMANDS_GENERATION_RETRIES_H_

#include "absl/status/status.h"
#include "client/commands/context.h"
#include "client/commands/generation_printer.h"

#include "lethe/v1/generation.pb.h"

namespace lethe::client {

inline constexpr int kGenerateRetries = 3;

absl::Status GenerateToEnd(Context& context, v1::GenerateRequest request,
                           GenerationPrinter& printer);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_GENERATION_RETRIES_H_
