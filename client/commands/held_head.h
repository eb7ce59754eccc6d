// ReadHeldHead: a signed head of the log that somebody kept: a checkpoint, or the one in a certificate.
//
// Equation:  none.
// Shapes:    a checkpoint file, a proof file (tlog-proof), or a directory with a certificate's proof.tlog.
// Units:     none.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT for a path that cannot be read; DATA_LOSS where no trusted log key signed what is there.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_COMMANDS_HELD_HEAD_H_
#define LETHE_CLIENT_COMMANDS_HELD_HEAD_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/certificate/trust.h"
#include "audit/log/checkpoint.h"

namespace lethe::client {

absl::StatusOr<audit::Checkpoint> ReadHeldHead(const std::string& path,
                                               const audit::TrustStore& trust);
// The same of a note's text.
absl::StatusOr<audit::Checkpoint> OpenTrustedHead(absl::string_view note,
                                                  const audit::TrustStore& trust);
// The trusted key of the log that a note's first line names; DATA_LOSS when none is trusted.
absl::StatusOr<audit::VerifierKey> TrustedLogKey(absl::string_view note,
                                                 const audit::TrustStore& trust);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_HELD_HEAD_H_
