// InputTree: a Merkle tree over a sequence of inputs whose shape is a function of the sequence
// alone.
//
// Equation:  leaf_i = SHA-256(key bytes || value bytes). Level 0 is the leaves; level l + 1 holds
//            one hash per node, a node being a run of consecutive hashes of level l, cut from left
//            to right: a run ends after its hash c if it has at least kMinChildren hashes and the
//            low five bits of c's last byte are zero, or if it has kMaxChildren hashes, or at the
//            end of the level. node = SHA-256(0x01 || children); the level with one hash is the
//            top; root = SHA-256(0x02 || u64 n || top), and for n = 0 root = SHA-256(0x02 || u64
//            0). docs/state-digest.md has the format and test vectors.
// Shapes:    a hash is 32 bytes; u64 little-endian.
// Units:     positions are ranks among the inputs, from 0.
// Requires:  Truncate: num_leaves <= num_leaves(); Erase: i < num_leaves() (checked by LETHE_CHECK).
// Rejects:   none.
// Effects:   none beyond the object; Truncate and Erase leave no hash of a dropped leaf or of a node
//            that covers one.
// Numerics:  exact. Append O(1) amortised, at worst O(kMaxChildren log n) bytes hashed; Truncate
//            O(log n); Root O(kMaxChildren log n) at worst, 32 log n hashes on average inputs. Erase
//            moves O(n) bytes and hashes again the runs around the leaf, up to the next place where
//            runs end as before: 64 log n hashes on average inputs, O(n) chosen by an adversary. A
//            level has at most ceil(m / kMinChildren) hashes over m, so the depth is at most
//            ceil(log2 n), whatever an adversary chooses as inputs.
// Threads:   compatible.
#ifndef LETHE_AUDIT_STATE_INPUT_TREE_H_
#define LETHE_AUDIT_STATE_INPUT_TREE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

#include "audit/crypto/sha256.h"

namespace lethe::audit {

class InputTree {
 public:
  static constexpr uint64_t kMinChildren = 2;
  static constexpr uint64_t kMaxChildren = 256;

  // The leaf hash of one input.
  static Sha256Digest LeafHash(absl::string_view key_bytes, absl::string_view value_bytes);

  void Append(const Sha256Digest& leaf_hash);
  void Truncate(uint64_t num_leaves);
  // Takes one leaf out; later ones move down.
  void Erase(uint64_t i);
  Sha256Digest Root() const;
  const Sha256Digest& leaf(uint64_t i) const { return levels_[0].hashes[i]; }  // i < num_leaves()
  uint64_t num_leaves() const { return levels_.empty() ? 0 : levels_[0].hashes.size(); }
  size_t state_bytes() const;

 private:
  // Hashes of a level; for the levels above 0 only closed nodes, those that no later leaf can
  // change.
  struct Level {
    std::vector<Sha256Digest> hashes;
    std::vector<uint64_t>
        node_ends;  // of hashes[i]: the index after its last child, one level down
  };

  void AppendAt(size_t level, const Sha256Digest& hash);
  // Replaces `removed` hashes of a level from `begin` on, and the nodes over them.
  void Replace(size_t level, uint64_t begin, uint64_t removed,
               const std::vector<Sha256Digest>& inserted);
  uint64_t OpenBegin(size_t level) const;  // first hash of `level` that no closed node covers

  std::vector<Level> levels_;
};

// The root over leaves given at once, by the definition (for verifiers and tests; O(n) memory).
Sha256Digest InputTreeRoot(const std::vector<Sha256Digest>& leaf_hashes);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_STATE_INPUT_TREE_H_
