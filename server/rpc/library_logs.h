// TakeLibraryLogs, TakeInvalidUtf8Field: what gRPC and protobuf would print on standard error goes
// to the server's own diagnostics instead, without content.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   TakeLibraryLogs replaces the log handlers of both libraries in this process, once.
//            gRPC's lines appear at level debug: what they say that a user must know, the server
//            says itself. Of protobuf's only the place appears, as its parsers may quote what they
//            read. TakeInvalidUtf8Field returns the field that made the last parse of this thread
//            fail ("subject"), or "", and forgets it.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_LIBRARY_LOGS_H_
#define LETHE_SERVER_RPC_LIBRARY_LOGS_H_

#include <string>

namespace lethe {

void TakeLibraryLogs();

std::string TakeInvalidUtf8Field();

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_LIBRARY_LOGS_H_
