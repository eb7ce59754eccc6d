#include "audit/log/merkle_tree.h"

#include <algorithm>
#include <bit>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lethe::audit {
namespace {

constexpr char kLeafPrefix[] = "\x00";
constexpr char kNodePrefix[] = "\x01";

// The size of the left subtree of n > 1 leaves: the largest power of two below n.
uint64_t SplitSize(uint64_t num_leaves) { return std::bit_floor(num_leaves - 1); }

}  // namespace

Sha256Digest MerkleLeafHash(absl::string_view entry) {
  return Sha256().Update(absl::string_view(kLeafPrefix, 1)).Update(entry).Finish();
}

Sha256Digest MerkleNodeHash(const Sha256Digest& left, const Sha256Digest& right) {
  return Sha256().Update(absl::string_view(kNodePrefix, 1)).Update(left).Update(right).Finish();
}

Sha256Digest MerkleEmptyRoot() { return Sha256Of(""); }

void MerkleTree::Append(const Sha256Digest& leaf_hash) {
  Sha256Digest hash = leaf_hash;
  size_t level = 0;
  while (true) {
    if (levels_.size() == level) levels_.emplace_back();
    levels_[level].push_back(hash);
    const size_t num_nodes = levels_[level].size();
    if (num_nodes % 2 != 0) return;
    hash = MerkleNodeHash(levels_[level][num_nodes - 2], levels_[level][num_nodes - 1]);
    ++level;
  }
}

void MerkleTree::Truncate(uint64_t num_leaves) {
  for (size_t level = 0; level < levels_.size(); ++level) {
    levels_[level].resize(num_leaves >> level);
  }
}

uint64_t MerkleTree::num_leaves() const { return levels_.empty() ? 0 : levels_[0].size(); }

Sha256Digest MerkleTree::RangeRoot(uint64_t begin, uint64_t end) const {
  const uint64_t num = end - begin;
  if (num == 0) return MerkleEmptyRoot();
  if (std::has_single_bit(num)) {
    const auto level = static_cast<size_t>(std::countr_zero(num));
    return levels_[level][begin >> level];
  }
  const uint64_t middle = begin + SplitSize(num);
  return MerkleNodeHash(RangeRoot(begin, middle), RangeRoot(middle, end));
}

absl::StatusOr<Sha256Digest> MerkleTree::RootAt(uint64_t tree_size) const {
  if (tree_size > num_leaves()) {
    return absl::OutOfRangeError(
        absl::StrCat("tree_size: got ", tree_size, ", want at most ", num_leaves()));
  }
  return RangeRoot(0, tree_size);
}

absl::StatusOr<std::vector<Sha256Digest>> MerkleTree::InclusionProof(uint64_t leaf_index,
                                                                     uint64_t tree_size) const {
  if (tree_size > num_leaves()) {
    return absl::OutOfRangeError(
        absl::StrCat("tree_size: got ", tree_size, ", want at most ", num_leaves()));
  }
  if (leaf_index >= tree_size) {
    return absl::OutOfRangeError(
        absl::StrCat("leaf_index: got ", leaf_index, ", want below ", tree_size));
  }
  // From the root down; the proof runs the other way.
  std::vector<Sha256Digest> proof;
  uint64_t begin = 0;
  uint64_t end = tree_size;
  while (end - begin > 1) {
    const uint64_t middle = begin + SplitSize(end - begin);
    if (leaf_index < middle) {
      proof.push_back(RangeRoot(middle, end));
      end = middle;
    } else {
      proof.push_back(RangeRoot(begin, middle));
      begin = middle;
    }
  }
  std::reverse(proof.begin(), proof.end());
  return proof;
}

absl::StatusOr<std::vector<Sha256Digest>> MerkleTree::ConsistencyProof(uint64_t old_size,
                                                                       uint64_t new_size) const {
  if (new_size > num_leaves()) {
    return absl::OutOfRangeError(
        absl::StrCat("new_size: got ", new_size, ", want at most ", num_leaves()));
  }
  if (old_size == 0 || old_size > new_size) {
    return absl::OutOfRangeError(
        absl::StrCat("old_size: got ", old_size, ", want 1 to ", new_size));
  }
  // SUBPROOF of RFC 6962 section 2.1.2, from the root down; the proof runs the other way.
  std::vector<Sha256Digest> proof;
  uint64_t begin = 0;
  uint64_t end = new_size;
  while (end != old_size) {
    const uint64_t middle = begin + SplitSize(end - begin);
    if (old_size <= middle) {
      proof.push_back(RangeRoot(middle, end));
      end = middle;
    } else {
      proof.push_back(RangeRoot(begin, middle));
      begin = middle;
    }
  }
  // What is left is a subtree of the old tree; its root is known to the verifier only if it is the
  // old root.
  if (begin != 0) proof.push_back(RangeRoot(begin, end));
  std::reverse(proof.begin(), proof.end());
  return proof;
}

}  // namespace lethe::audit
