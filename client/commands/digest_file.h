// DigestFile: a state digest with its parts, as `lethe session digest --parts` writes it in JSON.
//
// Equation:  none.
// Shapes:    hashes 32 bytes, 64 hex digits.
// Units:     none.
// Requires:  none.
// Rejects:   ParseDigestFile: INVALID_ARGUMENT naming the field that is missing or malformed, and a
//            file whose digest is not that of its parts.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_COMMANDS_DIGEST_FILE_H_
#define LETHE_CLIENT_COMMANDS_DIGEST_FILE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/state/state_digest.h"
#include "lethe/v1/types.pb.h"

namespace lethe::client {

struct DigestFile {
  audit::Sha256Digest digest{};
  std::vector<audit::StatePart> parts;
};

// Both {"sha256":...,"parts":[...]} and an object that holds it as "digest".
absl::StatusOr<DigestFile> ParseDigestFile(absl::string_view json);

// The same out of a response.
absl::StatusOr<DigestFile> DigestFromProto(const v1::StateDigest& digest);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_DIGEST_FILE_H_
