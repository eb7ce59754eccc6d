// MerkleTree: the RFC 6962 SHA-256 tree over an append-only list of leaves, with roots and proofs
// of every size.
//
// Equation:  leaf = SHA-256(0x00 || entry), node = SHA-256(0x01 || left || right), empty tree =
//            SHA-256(""); a list of n > 1 leaves splits at the largest power of two below n (RFC
//            6962 section 2.1).
// Shapes:    hashes are 32 bytes; an inclusion proof holds the sibling first, the root's child
//            last.
// Units:     leaf_index and tree sizes count leaves from 0.
// Requires:  none.
// Rejects:   OUT_OF_RANGE: leaf_index >= tree_size, tree_size > num_leaves(), consistency from size
//            0 or from a larger size.
// Effects:   Append adds one leaf, Truncate drops the last ones; nothing else mutates.
// Numerics:  none; Append amortised O(1) hashes, Root and proofs O(log^2 n) at most; 64 bytes a
//            leaf.
// Threads:   compatible.
#ifndef LETHE_AUDIT_LOG_MERKLE_TREE_H_
#define LETHE_AUDIT_LOG_MERKLE_TREE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/sha256.h"

namespace lethe::audit {

Sha256Digest MerkleLeafHash(absl::string_view entry);
Sha256Digest MerkleNodeHash(const Sha256Digest& left, const Sha256Digest& right);
Sha256Digest MerkleEmptyRoot();

class MerkleTree {
 public:
  void Append(const Sha256Digest& leaf_hash);
  // Drops the leaves from num_leaves on; num_leaves <= num_leaves().
  void Truncate(uint64_t num_leaves);

  uint64_t num_leaves() const;
  const Sha256Digest& leaf_hash(uint64_t leaf_index) const { return levels_[0][leaf_index]; }
  // Root of the leaves [index 2^level, (index + 1) 2^level), all of which are there.
  const Sha256Digest& SubtreeRoot(size_t level, uint64_t index) const {
    return levels_[level][index];
  }

  Sha256Digest Root() const { return RangeRoot(0, num_leaves()); }
  absl::StatusOr<Sha256Digest> RootAt(uint64_t tree_size) const;
  absl::StatusOr<std::vector<Sha256Digest>> InclusionProof(uint64_t leaf_index,
                                                           uint64_t tree_size) const;
  absl::StatusOr<std::vector<Sha256Digest>> ConsistencyProof(uint64_t old_size,
                                                             uint64_t new_size) const;

 private:
  // Root of the leaves [begin, end), begin a multiple of the largest power of two below end -
  // begin.
  Sha256Digest RangeRoot(uint64_t begin, uint64_t end) const;

  // levels_[k][j]: root of the complete subtree over leaves [j 2^k, (j+1) 2^k).
  std::vector<std::vector<Sha256Digest>> levels_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_MERKLE_TREE_H_
