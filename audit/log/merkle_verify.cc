#include "audit/log/merkle_verify.h"

#include <bit>
#include <vector>

#include "audit/log/merkle_tree.h"

namespace lethe::audit {
namespace {

// A node's index and the index of the last node, on one level of the tree. RFC 9162 calls them fn
// and sn.
struct LevelPosition {
  uint64_t node = 0;
  uint64_t last = 0;

  bool IsRightChildOrLast() const { return (node & 1) != 0 || node == last; }
  void Up() {
    node >>= 1;
    last >>= 1;
  }
  // A last node without sibling is its own parent on the next levels.
  void SkipLevelsWithoutSibling() {
    while ((node & 1) == 0 && node != 0) Up();
  }
};

}  // namespace

absl::Status VerifyInclusion(const InclusionClaim& claim, absl::Span<const Sha256Digest> proof) {
  if (claim.leaf_index >= claim.tree_size) {
    return absl::InvalidArgumentError("leaf index is outside the tree");
  }
  LevelPosition position{claim.leaf_index, claim.tree_size - 1};
  Sha256Digest root = claim.leaf_hash;
  for (const Sha256Digest& sibling : proof) {
    if (position.last == 0) return absl::InvalidArgumentError("inclusion proof is too long");
    if (position.IsRightChildOrLast()) {
      root = MerkleNodeHash(sibling, root);
      position.SkipLevelsWithoutSibling();
    } else {
      root = MerkleNodeHash(root, sibling);
    }
    position.Up();
  }
  if (position.last != 0) return absl::InvalidArgumentError("inclusion proof is too short");
  if (root != claim.root_hash) {
    return absl::InvalidArgumentError("inclusion proof leads to another root");
  }
  return absl::OkStatus();
}

absl::Status VerifyConsistency(const ConsistencyClaim& claim,
                               absl::Span<const Sha256Digest> proof) {
  if (claim.old_size == 0 || claim.old_size > claim.new_size) {
    return absl::InvalidArgumentError("old tree size is 0 or above the new one");
  }
  if (claim.old_size == claim.new_size) {
    if (!proof.empty()) return absl::InvalidArgumentError("consistency proof is too long");
    if (claim.old_root != claim.new_root) {
      return absl::InvalidArgumentError("two roots for one tree size");
    }
    return absl::OkStatus();
  }
  if (proof.empty()) return absl::InvalidArgumentError("consistency proof is too short");
  std::vector<Sha256Digest> path(proof.begin(), proof.end());
  // A complete old tree is a node of the new one, so the prover leaves its hash out.
  if (std::has_single_bit(claim.old_size)) path.insert(path.begin(), claim.old_root);
  LevelPosition position{claim.old_size - 1, claim.new_size - 1};
  while ((position.node & 1) != 0) position.Up();
  Sha256Digest old_root = path[0];
  Sha256Digest new_root = path[0];
  for (size_t i = 1; i < path.size(); ++i) {
    if (position.last == 0) return absl::InvalidArgumentError("consistency proof is too long");
    if (position.IsRightChildOrLast()) {
      old_root = MerkleNodeHash(path[i], old_root);
      new_root = MerkleNodeHash(path[i], new_root);
      position.SkipLevelsWithoutSibling();
    } else {
      new_root = MerkleNodeHash(new_root, path[i]);
    }
    position.Up();
  }
  if (position.last != 0) return absl::InvalidArgumentError("consistency proof is too short");
  if (old_root != claim.old_root) {
    return absl::InvalidArgumentError("consistency proof leads to another old root");
  }
  if (new_root != claim.new_root) {
    return absl::InvalidArgumentError("consistency proof leads to another new root");
  }
  return absl::OkStatus();
}

}  // namespace lethe::audit
