#include "audit/log/checkpoint.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "audit/crypto/encoding.h"
#include "audit/log/decimal.h"
#include "audit/log/merkle_tree.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {

std::string WriteCheckpointText(const Checkpoint& checkpoint) {
  return absl::StrCat(checkpoint.origin, "\n", checkpoint.tree_size, "\n",
                      Base64Encode(checkpoint.root_hash), "\n");
}

absl::StatusOr<Checkpoint> ParseCheckpointText(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines.size() != 4 || !lines[3].empty()) {
    return absl::InvalidArgumentError("checkpoint: want the three lines origin, size and root");
  }
  Checkpoint checkpoint;
  LETHE_RETURN_IF_ERROR(ValidateKeyName(lines[0]));
  checkpoint.origin = std::string(lines[0]);
  absl::StatusOr<uint64_t> tree_size = ParseDecimal(lines[1]);
  if (!tree_size.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint: size: ", tree_size.status().message()));
  }
  checkpoint.tree_size = *tree_size;
  absl::StatusOr<std::string> root = Base64Decode(lines[2]);
  if (!root.ok() || root->size() != kSha256Bytes) {
    return absl::InvalidArgumentError("checkpoint: root is no base64 of 32 bytes");
  }
  LETHE_ASSIGN_OR_RETURN(checkpoint.root_hash, DigestFromBytes(*root));
  if (checkpoint.tree_size == 0 && checkpoint.root_hash != MerkleEmptyRoot()) {
    return absl::InvalidArgumentError("checkpoint: size 0 with another root than the empty tree's");
  }
  return checkpoint;
}

std::string SignCheckpoint(const Checkpoint& checkpoint, const Ed25519PrivateKey& key) {
  SignedNote note;
  note.text = WriteCheckpointText(checkpoint);
  note.signatures.push_back(SignNoteText(note.text, checkpoint.origin, key));
  return WriteNote(note);
}

absl::StatusOr<Checkpoint> OpenCheckpoint(absl::string_view note, const VerifierKey& vkey) {
  LETHE_ASSIGN_OR_RETURN(const SignedNote parsed, ParseNote(note));
  LETHE_RETURN_IF_ERROR(VerifyNote(parsed, vkey));
  LETHE_ASSIGN_OR_RETURN(Checkpoint checkpoint, ParseCheckpointText(parsed.text));
  if (checkpoint.origin != vkey.name) {
    return absl::InvalidArgumentError("checkpoint: the origin is not the signing key's name");
  }
  return checkpoint;
}

}  // namespace lethe::audit
