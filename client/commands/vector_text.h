// AddVectorFields: what a vector session is, as lines of a table.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   nothing.
// Effects:   adds lines to *table.
// Numerics:  numbers are rounded for reading.
// Threads:   safe.
#ifndef LETHE_CLIENT_COMMANDS_VECTOR_TEXT_H_
#define LETHE_CLIENT_COMMANDS_VECTOR_TEXT_H_

#include "client/commands/report.h"

#include "lethe/v1/types.pb.h"

namespace lethe::client {

void AddVectorFields(const v1::VectorOptions& options, FieldTable* table);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_VECTOR_TEXT_H_
