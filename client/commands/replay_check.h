// RebuildDigest, CompareReplay: proof P1, the state digest of a fresh session that was told only the
// retained inputs, against the certificate's.
//
// Equation:  the certificate's subject digest is HMAC-SHA-256(certSalt, state digest); certSalt is in the
//            opening (docs/certificate-format.md).
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   RebuildDigest: the fresh server's errors. CompareReplay: DATA_LOSS saying what differs:
//            model, numerics, device kind, digest (and its first part that differs, where the
//            certified parts are at hand).
// Effects:   RebuildDigest makes a session on the fresh server and deletes it.
// Numerics:  none.
// Threads:   as Client.
#ifndef LETHE_CLIENT_COMMANDS_REPLAY_CHECK_H_
#define LETHE_CLIENT_COMMANDS_REPLAY_CHECK_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/commands/digest_file.h"
#include "client/inputs_file.h"

#include "audit/certificate/opening.h"
#include "audit/certificate/statement.h"

namespace lethe::client {

// What the record claims.
struct ReplayClaim {
  audit::Statement statement;
  audit::Opening opening;
  std::vector<audit::StatePart> parts;  // of the certified digest; empty = not at hand
};

struct ReplayResult {
  DigestFile digest;
  std::string model;  // its name; "": a vector session
  int64_t num_inputs = 0;
};

using ReplayProgress = std::function<void(size_t num_done)>;

absl::StatusOr<ReplayResult> RebuildDigest(Client& fresh, const InputsFile& inputs,
                                           const ReplayProgress& progress);

absl::Status CompareReplay(const ReplayClaim& claim, const ReplayResult& replay);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_REPLAY_CHECK_H_
