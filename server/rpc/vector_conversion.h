// ReadMatrix, SetMatrix, ReadVectorOptions, SetVectorOptions: the messages of memory.proto.
//
// Equation:  box mass M = 1/C = nu n0.
// Shapes:    matrices row-major.
// Units:     none.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT, reason INVALID_FIELD, naming the field and its range. Never content.
// Effects:   none. A matrix is read where it lies in the message.
// Numerics:  exact.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_VECTOR_CONVERSION_H_
#define LETHE_SERVER_RPC_VECTOR_CONVERSION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "lethe/v1/memory.pb.h"
#include "lethe/v1/types.pb.h"
#include "server/vector_session/vector_session.h"

namespace lethe {

// The numbers of a matrix of `num_columns` columns and 1 to 65,536 rows, finite and at most 2^400 in magnitude.
absl::StatusOr<absl::Span<const double>> ReadMatrix(absl::string_view field,
                                                    const v1::Matrix& matrix, int64_t num_columns);
void SetMatrix(absl::Span<const double> numbers, int64_t num_columns, v1::Matrix* matrix);

// max_inputs is left to the server.
absl::StatusOr<VectorOptions> ReadVectorOptions(const v1::VectorOptions& message);
void SetVectorOptions(const VectorOptions& options, v1::VectorOptions* message);

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_VECTOR_CONVERSION_H_
