// TlogProof: the offline proof of one entry, the file format C2SP tlog-proof@v1.
//
// Equation:  "c2sp.org/tlog-proof@v1\n" ["extra " base64 "\n"] "index " i "\n" {base64 hash "\n"}
//            "\n" checkpoint.
// Shapes:    hashes 32 bytes, the sibling first, the root's child last, at most 63.
// Units:     leaf_index counts from 0, decimal without leading zero.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT naming the line.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_LOG_TLOG_PROOF_H_
#define LETHE_AUDIT_LOG_TLOG_PROOF_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/sha256.h"

namespace lethe::audit {

struct TlogProof {
  std::optional<std::string> extra;  // unauthenticated; we write none and our verifier refuses it
  uint64_t leaf_index = 0;
  std::vector<Sha256Digest> hashes;
  std::string checkpoint;  // the signed note, verbatim
};

std::string WriteTlogProof(const TlogProof& proof);
absl::StatusOr<TlogProof> ParseTlogProof(absl::string_view file);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_TLOG_PROOF_H_
