// Goal: roots and proofs are RFC 6962's, every right proof verifies and every wrong one is refused.
// Method: the published vectors; all sizes up to 70 against the recursive reference, with all wrong
// indices and sizes; mutations in the manner of transparency-dev/merkle's testdata.
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "audit/crypto/encoding.h"
#include "audit/log/merkle_tree.h"
#include "audit/log/merkle_verify.h"
#include "tests/audit/log/merkle_ref.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;
using Proof = std::vector<Sha256Digest>;
constexpr size_t kSizeMax = 70;

Entries MakeEntries(size_t n) {
  Entries entries;
  for (size_t i = 0; i < n; ++i) entries.push_back("entry " + std::to_string(i));
  return entries;
}

MerkleTree MakeTree(const Entries& entries) {
  MerkleTree tree;
  for (const std::string& entry : entries) tree.Append(MerkleLeafHash(entry));
  return tree;
}

// Origin: the reference inputs and roots of google/certificate-transparency's merkle_tree_test
// (also transparency-dev/merkle).
TEST(MerkleTreeTest, PublishedRoots) {
  const Entries inputs = {"",         std::string(1, '\0'), "\x10", "\x20\x21", "\x30\x31", "@ABC",
                          "PQRSTUVW", "`abcdefghijklmno"};
  const char* roots[] = {"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
                         "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
                         "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
                         "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
                         "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
                         "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
                         "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
                         "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"};
  MerkleTree tree;
  EXPECT_EQ(HexEncode(tree.Root()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  for (size_t i = 0; i < inputs.size(); ++i) {
    tree.Append(MerkleLeafHash(inputs[i]));
    EXPECT_EQ(HexEncode(tree.Root()), roots[i]) << i;
  }
}

TEST(MerkleTreeTest, EqualsTheReferenceAtEverySize) {
  const MerkleTree tree = MakeTree(MakeEntries(kSizeMax));
  for (size_t n = 0; n <= kSizeMax; ++n) {
    ASSERT_OK_AND_ASSIGN(const Sha256Digest root, tree.RootAt(n));
    EXPECT_EQ(root, RefRoot(MakeEntries(n))) << n;
  }
}

TEST(MerkleTreeTest, EveryInclusionProofIsTheReferencesAndVerifies) {
  const MerkleTree tree = MakeTree(MakeEntries(kSizeMax));
  int num_proofs = 0;
  for (size_t n = 1; n <= kSizeMax; ++n) {
    const Entries entries = MakeEntries(n);
    const Sha256Digest root = RefRoot(entries);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_OK_AND_ASSIGN(const Proof proof, tree.InclusionProof(i, n));
      EXPECT_EQ(proof, RefInclusionProof(i, entries)) << i << " of " << n;
      EXPECT_OK(VerifyInclusion({i, n, tree.leaf_hash(i), root}, proof)) << i << " of " << n;
      // The same proof at every other index of the tree is refused: the leaf is bound to its place.
      for (size_t j = 0; j <= n; ++j) {
        if (j == i) continue;
        EXPECT_FALSE(VerifyInclusion({j, n, tree.leaf_hash(i), root}, proof).ok())
            << i << " as " << j << " of " << n;
      }
      ++num_proofs;
    }
  }
  EXPECT_EQ(num_proofs, 2485);
}

TEST(MerkleTreeTest, EveryConsistencyProofIsTheReferencesAndVerifies) {
  const MerkleTree tree = MakeTree(MakeEntries(kSizeMax));
  int num_proofs = 0;
  for (size_t n = 1; n <= kSizeMax; ++n) {
    const Entries entries = MakeEntries(n);
    const Sha256Digest root = RefRoot(entries);
    for (size_t m = 1; m <= n; ++m) {
      ASSERT_OK_AND_ASSIGN(const Proof proof, tree.ConsistencyProof(m, n));
      const Sha256Digest old_root = RefRoot(MakeEntries(m));
      EXPECT_EQ(proof, RefConsistencyProof(m, entries)) << m << " to " << n;
      EXPECT_OK(VerifyConsistency({m, n, old_root, root}, proof)) << m << " to " << n;
      for (size_t other = 0; other <= n + 1; ++other) {
        if (other == m) continue;
        EXPECT_FALSE(VerifyConsistency({other, n, old_root, root}, proof).ok())
            << m << " as " << other << " to " << n;
      }
      ++num_proofs;
    }
  }
  EXPECT_EQ(num_proofs, 2485);
}

// One mutation of a proof or its claim; each must be refused.
std::vector<Proof> MutatedProofs(const Proof& proof, const Sha256Digest& extra) {
  std::vector<Proof> mutants;
  for (size_t i = 0; i < proof.size(); ++i) {
    for (const size_t bit : {size_t{0}, size_t{100}, size_t{255}}) {
      Proof flipped = proof;
      flipped[i][bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
      mutants.push_back(flipped);
    }
    Proof dropped = proof;
    dropped.erase(dropped.begin() + static_cast<std::ptrdiff_t>(i));
    mutants.push_back(dropped);
  }
  for (size_t i = 0; i <= proof.size(); ++i) {
    Proof inserted = proof;
    inserted.insert(inserted.begin() + static_cast<std::ptrdiff_t>(i), extra);
    mutants.push_back(inserted);
  }
  for (size_t i = 1; i < proof.size(); ++i) {
    Proof swapped = proof;
    std::swap(swapped[i - 1], swapped[i]);
    mutants.push_back(swapped);
  }
  return mutants;
}

TEST(MerkleVerifyTest, MutatedInclusionProofsAreRefused) {
  const MerkleTree tree = MakeTree(MakeEntries(kSizeMax));
  for (const size_t n : {1u, 2u, 3u, 5u, 7u, 8u, 9u, 31u, 33u, 64u, 65u, 70u}) {
    ASSERT_OK_AND_ASSIGN(const Sha256Digest root, tree.RootAt(n));
    for (size_t i = 0; i < n; ++i) {
      ASSERT_OK_AND_ASSIGN(const Proof proof, tree.InclusionProof(i, n));
      const InclusionClaim claim{i, n, tree.leaf_hash(i), root};
      for (const Sha256Digest& extra : {root, tree.leaf_hash(i), Sha256Digest{}}) {
        for (const Proof& mutant : MutatedProofs(proof, extra)) {
          EXPECT_FALSE(VerifyInclusion(claim, mutant).ok()) << i << " of " << n;
        }
      }
      InclusionClaim other_root = claim;
      other_root.root_hash[31] ^= 1;
      EXPECT_FALSE(VerifyInclusion(other_root, proof).ok());
      InclusionClaim other_leaf = claim;
      other_leaf.leaf_hash[0] ^= 1;
      EXPECT_FALSE(VerifyInclusion(other_leaf, proof).ok());
      // Twice the size has another path length; one more may share it, and is then bound by the
      // root.
      EXPECT_FALSE(VerifyInclusion({i, 2 * n, claim.leaf_hash, root}, proof).ok());
    }
  }
}

TEST(MerkleVerifyTest, MutatedConsistencyProofsAreRefused) {
  const MerkleTree tree = MakeTree(MakeEntries(kSizeMax));
  for (const size_t n : {1u, 2u, 3u, 5u, 7u, 8u, 9u, 31u, 33u, 64u, 65u, 70u}) {
    for (size_t m = 1; m <= n; ++m) {
      ASSERT_OK_AND_ASSIGN(const Proof proof, tree.ConsistencyProof(m, n));
      ASSERT_OK_AND_ASSIGN(const Sha256Digest old_root, tree.RootAt(m));
      ASSERT_OK_AND_ASSIGN(const Sha256Digest new_root, tree.RootAt(n));
      const ConsistencyClaim claim{m, n, old_root, new_root};
      for (const Sha256Digest& extra : {old_root, new_root, Sha256Digest{}}) {
        for (const Proof& mutant : MutatedProofs(proof, extra)) {
          EXPECT_FALSE(VerifyConsistency(claim, mutant).ok()) << m << " to " << n;
        }
      }
      if (m == n) continue;
      EXPECT_FALSE(VerifyConsistency({m, n, new_root, old_root}, proof).ok());
      EXPECT_FALSE(VerifyConsistency({m, n, old_root, old_root}, proof).ok());
      EXPECT_FALSE(VerifyConsistency({m, n, new_root, new_root}, proof).ok());
      EXPECT_FALSE(VerifyConsistency({n, m, old_root, new_root}, proof).ok());
    }
  }
}

TEST(MerkleVerifyTest, SizeZeroIsRefused) {
  EXPECT_THAT(VerifyConsistency({0, 0, MerkleEmptyRoot(), MerkleEmptyRoot()}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(VerifyConsistency({0, 5, MerkleEmptyRoot(), MerkleEmptyRoot()}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(VerifyInclusion({0, 0, {}, MerkleEmptyRoot()}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(MerkleTreeTest, OutOfRangeIsRefused) {
  const MerkleTree tree = MakeTree(MakeEntries(5));
  EXPECT_THAT(tree.RootAt(6), StatusIs(absl::StatusCode::kOutOfRange, "tree_size"));
  EXPECT_THAT(tree.InclusionProof(5, 5), StatusIs(absl::StatusCode::kOutOfRange, "leaf_index"));
  EXPECT_THAT(tree.InclusionProof(0, 6), StatusIs(absl::StatusCode::kOutOfRange, "tree_size"));
  EXPECT_THAT(tree.ConsistencyProof(0, 5), StatusIs(absl::StatusCode::kOutOfRange, "old_size"));
  EXPECT_THAT(tree.ConsistencyProof(5, 4), StatusIs(absl::StatusCode::kOutOfRange, "old_size"));
  EXPECT_THAT(tree.ConsistencyProof(1, 6), StatusIs(absl::StatusCode::kOutOfRange, "new_size"));
}

TEST(MerkleTreeTest, TruncateEqualsNeverAppended) {
  for (size_t n = 0; n <= 33; ++n) {
    for (size_t keep = 0; keep <= n; ++keep) {
      MerkleTree tree = MakeTree(MakeEntries(n));
      tree.Truncate(keep);
      EXPECT_EQ(tree.Root(), RefRoot(MakeEntries(keep)));
      for (size_t i = keep; i < n; ++i) tree.Append(MerkleLeafHash(MakeEntries(n)[i]));
      EXPECT_EQ(tree.Root(), RefRoot(MakeEntries(n)));
    }
  }
}

}  // namespace
}  // namespace lethe::audit
