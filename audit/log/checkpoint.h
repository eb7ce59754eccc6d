// Checkpoint: the signed head of a log, C2SP tlog-checkpoint.
//
// Equation:  text = origin "\n" size "\n" base64(root) "\n"; the note's key name is the origin.
// Shapes:    root_hash 32 bytes.
// Units:     tree_size in leaves, decimal without leading zero.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT: anything but those three lines (extension lines are refused: we
//            write none), a size of 0 with another root than that of the empty tree.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_LOG_CHECKPOINT_H_
#define LETHE_AUDIT_LOG_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/ed25519.h"
#include "audit/crypto/sha256.h"
#include "audit/log/note.h"

namespace lethe::audit {

struct Checkpoint {
  std::string origin;
  uint64_t tree_size = 0;
  Sha256Digest root_hash{};
};

std::string WriteCheckpointText(const Checkpoint& checkpoint);
absl::StatusOr<Checkpoint> ParseCheckpointText(absl::string_view text);

// The whole signed note, by the log's key under the name `origin`.
std::string SignCheckpoint(const Checkpoint& checkpoint, const Ed25519PrivateKey& key);

// Parses a note and verifies vkey's signature; the origin must be vkey's name.
absl::StatusOr<Checkpoint> OpenCheckpoint(absl::string_view note, const VerifierKey& vkey);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_CHECKPOINT_H_
