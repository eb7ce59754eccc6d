// ReadTrust: the keys that a verifier got out of band, from the file of --trust.
//
// Equation:  none.
// Shapes:    audit/certificate/trust.h has the file's format.
// Units:     none.
// Requires:  none.
// Rejects:   DATA_LOSS "no trusted key" for an empty path and for a file without a record key or without
//            a log key; INVALID_ARGUMENT with path and line for a malformed file.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_COMMANDS_TRUST_FILE_H_
#define LETHE_CLIENT_COMMANDS_TRUST_FILE_H_

#include <string>

#include "absl/status/statusor.h"

#include "audit/certificate/trust.h"

namespace lethe::client {

absl::StatusOr<audit::TrustStore> ReadTrust(const std::string& path);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_TRUST_FILE_H_
