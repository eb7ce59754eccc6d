// CertifyInto: certifies a session's present state and keeps what comes back in a directory.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   as PrepareDirectory and WriteCertificate (certificate_files.h); the server's errors.
// Effects:   the directory is made before the server signs a record that then could not be kept; with a
//            request_id, by which the record can be asked for again, only afterwards.
// Numerics:  none.
// Threads:   as Client.
#ifndef LETHE_CLIENT_COMMANDS_CERTIFY_CALL_H_
#define LETHE_CLIENT_COMMANDS_CERTIFY_CALL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/commands/context.h"

namespace lethe::client {

struct CertifiedState {
  v1::CertifyResponse response;
  std::vector<std::string> files;  // names of those written
};

absl::StatusOr<CertifiedState> CertifyInto(Context& context, const v1::CertifyRequest& request,
                                           const std::string& directory);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_CERTIFY_CALL_H_
