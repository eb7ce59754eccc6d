// ReadVectors, SetRows, AppendRows, ListAllVectors and their kin: rows of numbers between files, messages
// and calls.
//
// Equation:  none.
// Shapes:    VectorMatrix (client/vector_file.h); Matrix (memory.proto) holds rows first to first + count - 1.
// Units:     rows, numbers.
// Requires:  keys and values of as many rows, or values of no columns.
// Rejects:   ReadVectors: as ReadInput and ParseVectors. The server's errors; ListAllVectors: ABORTED when the session was changed by a Forget between
//            two pages.
// Effects:   AppendRows: *appended covers what went in, also when a later part was refused.
// Numerics:  a session's state does not depend on the cuts.
// Threads:   as Client.
#ifndef LETHE_CLIENT_COMMANDS_VECTOR_CALLS_H_
#define LETHE_CLIENT_COMMANDS_VECTOR_CALLS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/commands/context.h"
#include "client/inputs_file.h"
#include "client/vector_file.h"

namespace lethe::client {

// The rows of the file, or of standard input when path is "-".
absl::StatusOr<VectorMatrix> ReadVectors(const Io& io, const std::string& path);

void SetRows(const VectorMatrix& matrix, int64_t first, int64_t count, v1::Matrix* rows);

// At most 2 MiB of numbers, a quarter of what a server takes unless told otherwise, but at least a row.
int64_t RowsPerCall(int64_t numbers_per_row);
// Of these rows.
int64_t RowsPerCall(const VectorRows& rows);
size_t NumParts(int64_t num_rows, int64_t rows_per_call);

// `request` has all but the rows; its request_id becomes that of each part (request_parts.h).
absl::Status AppendRows(Client& client, v1::AppendVectorsRequest request, const VectorRows& rows,
                        const std::function<void(int64_t num_done)>& progress,
                        v1::AppendVectorsResponse* appended);

// What a session of these options holds, without a row yet; AddRow adds one.
VectorInputs NoVectors(const v1::VectorOptions& options);
absl::Status AddRow(const v1::VectorRow& row, VectorRows* rows);

// Calls on_page with the rows of every page, in rank order, until it returns an error.
absl::Status ListAllVectors(
    Client& client, const std::string& session_id,
    absl::FunctionRef<absl::Status(const v1::ListVectorsResponse&)> on_page);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_VECTOR_CALLS_H_
