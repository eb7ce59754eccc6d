// Goal: the tree's root is a function of the sequence alone, appends, truncations and erasures agree
// with the definition, and chosen inputs cannot make it deep.
// Method: InputTree against InputTreeRoot, which builds whole levels; sequences that are random, equal,
// and chosen so that every leaf ends a run.

#include <cstddef>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

#include "audit/state/input_tree.h"

namespace lethe::audit {
namespace {

Sha256Digest Leaf(uint64_t value) { return InputTree::LeafHash(std::to_string(value), "value"); }

std::vector<Sha256Digest> RandomLeaves(size_t count, uint64_t seed) {
  std::vector<Sha256Digest> leaves;
  for (size_t i = 0; i < count; ++i) leaves.push_back(Leaf(seed * 1000003 + i));
  return leaves;
}

InputTree TreeOf(const std::vector<Sha256Digest>& leaves) {
  InputTree tree;
  for (const Sha256Digest& leaf : leaves) tree.Append(leaf);
  return tree;
}

TEST(InputTreeTest, LeafIsTheHashOfKeyThenValue) {
  EXPECT_EQ(InputTree::LeafHash("key", "value"), Sha256Of("keyvalue"));
}

TEST(InputTreeTest, EmptyAndOneLeafByHand) {
  EXPECT_EQ(InputTree().Root(), Sha256Of(std::string("\x02", 1) + std::string(8, '\0')));
  const Sha256Digest leaf = Leaf(1);
  const std::string one = std::string("\x02\x01", 2) + std::string(7, '\0');
  EXPECT_EQ(TreeOf({leaf}).Root(), Sha256Of(one + std::string(AsStringView(leaf))));
}

TEST(InputTreeTest, TwoLeavesByHand) {
  const Sha256Digest a = Leaf(1);
  const Sha256Digest b = Leaf(2);
  const Sha256Digest node = Sha256Of(std::string("\x01", 1) + std::string(AsStringView(a)) +
                                     std::string(AsStringView(b)));
  const std::string head = std::string("\x02\x02", 2) + std::string(7, '\0');
  EXPECT_EQ(TreeOf({a, b}).Root(), Sha256Of(head + std::string(AsStringView(node))));
}

TEST(InputTreeTest, AppendsAgreeWithTheDefinitionAtEveryLength) {
  const std::vector<Sha256Digest> leaves = RandomLeaves(1500, 1);
  InputTree tree;
  for (size_t n = 0; n <= leaves.size(); ++n) {
    if (n < 200 || n % 97 == 0) {
      ASSERT_EQ(tree.Root(),
                InputTreeRoot({leaves.begin(), leaves.begin() + static_cast<int64_t>(n)}))
          << n;
    }
    if (n < leaves.size()) tree.Append(leaves[n]);
  }
}

TEST(InputTreeTest, TruncationForgetsTheRest) {
  const std::vector<Sha256Digest> leaves = RandomLeaves(3000, 2);
  std::mt19937_64 random(5);
  InputTree tree = TreeOf(leaves);
  std::vector<Sha256Digest> now = leaves;
  for (int step = 0; step < 40; ++step) {
    const size_t keep = random() % (now.size() + 1);
    now.resize(keep);
    tree.Truncate(keep);
    ASSERT_EQ(tree.num_leaves(), keep);
    ASSERT_EQ(tree.Root(), InputTreeRoot(now)) << step;
    const std::vector<Sha256Digest> more =
        RandomLeaves(random() % 900, 100 + static_cast<uint64_t>(step));
    for (const Sha256Digest& leaf : more) {
      tree.Append(leaf);
      now.push_back(leaf);
    }
    ASSERT_EQ(tree.Root(), InputTreeRoot(now)) << step;
  }
}

// Random ranks, runs of neighbours, first and last leaves; then the tree grows again.
TEST(InputTreeTest, ErasureEqualsATreeWithoutTheLeaf) {
  std::mt19937_64 random(6);
  Sha256Digest ending = Leaf(1);
  ending.back() = 0x20;
  Sha256Digest not_ending = Leaf(1);
  not_ending.back() = 0x01;
  for (const int kind : {0, 1, 2, 3}) {
    std::vector<Sha256Digest> now = RandomLeaves(1500, 7 + static_cast<uint64_t>(kind));
    for (Sha256Digest& leaf : now) {
      if (kind == 1) leaf = ending;
      if (kind == 2) leaf = not_ending;
      if (kind == 3 && random() % 3 == 0) leaf.back() = 0x40;
    }
    InputTree tree = TreeOf(now);
    for (int step = 0; !now.empty(); ++step) {
      const size_t ranks[] = {random() % now.size(), 0, now.size() - 1, now.size() / 3};
      const size_t i = ranks[step % 4];
      now.erase(now.begin() + static_cast<std::ptrdiff_t>(i));
      tree.Erase(i);
      ASSERT_EQ(tree.num_leaves(), now.size());
      if (step % 5 != 0 && now.size() > 80) continue;
      ASSERT_EQ(tree.Root(), InputTreeRoot(now)) << "kind " << kind << ", leaves " << now.size();
      ASSERT_EQ(tree.state_bytes(), TreeOf(now).state_bytes());
      if (step % 50 != 0) continue;
      InputTree more = tree;
      std::vector<Sha256Digest> longer = now;
      for (const Sha256Digest& leaf : RandomLeaves(200, 8)) {
        more.Append(leaf);
        longer.push_back(leaf);
      }
      ASSERT_EQ(more.Root(), InputTreeRoot(longer));
      more.Truncate(now.size() / 2);
      longer.resize(now.size() / 2);
      ASSERT_EQ(more.Root(), InputTreeRoot(longer));
    }
  }
}

// Vectors of docs/state-digest.md, made by an independent Python program.
TEST(InputTreeTest, DocumentedVectors) {
  const std::vector<std::pair<size_t, std::string>> vectors = {
      {0, "4322fd2bc0a137d1375b37b3b2e2b4715b3d3dd7ca9682438d4fea0f8437fad3"},
      {1, "11f0090cd88f156c331c7e16a0b76c117b41b2e3111286e8da9a04cc9245157d"},
      {2, "bc53d5ea302e59ae20fa7ad504e5fadc52589677913e1bde6108cffb4c353076"},
      {100, "6eadb8b36d829785bd919c2a703fdbd32a1246f20199bf354260db42eebcef72"},
      {1000, "6358daa296cdf5f034e6ae7ced43e6622834f39b0d06c4a0b9657b2aeeb42f78"}};
  for (const auto& [count, root] : vectors) {
    InputTree tree;
    for (size_t i = 0; i < count; ++i) tree.Append(Leaf(i));
    EXPECT_EQ(absl::BytesToHexString(AsStringView(tree.Root())), root) << count;
  }
}

TEST(InputTreeTest, EverySingleEditChangesTheRoot) {
  const std::vector<Sha256Digest> leaves = RandomLeaves(150, 3);
  std::set<Sha256Digest> roots = {InputTreeRoot(leaves)};
  for (size_t i = 0; i < leaves.size(); ++i) {
    std::vector<Sha256Digest> removed = leaves;
    removed.erase(removed.begin() + static_cast<int64_t>(i));
    EXPECT_TRUE(roots.insert(InputTreeRoot(removed)).second) << i;
    std::vector<Sha256Digest> changed = leaves;
    changed[i][0] ^= 1;
    EXPECT_TRUE(roots.insert(InputTreeRoot(changed)).second) << i;
    if (i + 1 < leaves.size()) {
      std::vector<Sha256Digest> swapped = leaves;
      std::swap(swapped[i], swapped[i + 1]);
      EXPECT_TRUE(roots.insert(InputTreeRoot(swapped)).second) << i;
    }
  }
}

// Leaves that all end a run, or never do: the worst that an adversary who chooses inputs can feed.
TEST(InputTreeTest, ChosenLeavesStayShallowAndAgree) {
  Sha256Digest ending = Leaf(1);
  ending.back() = 0x20;
  Sha256Digest not_ending = Leaf(1);
  not_ending.back() = 0x01;
  for (const Sha256Digest& leaf : {ending, not_ending}) {
    const std::vector<Sha256Digest> leaves(5000, leaf);
    InputTree tree = TreeOf(leaves);
    EXPECT_EQ(tree.Root(), InputTreeRoot(leaves));
    // At most ceil(log2 5000) = 13 levels above the leaves: no more hashes than leaves in all of them.
    EXPECT_LE(tree.state_bytes(), (2 * 5000 + 14) * sizeof(Sha256Digest) + 5000 * 8);
    tree.Truncate(257);
    EXPECT_EQ(tree.Root(), InputTreeRoot(std::vector<Sha256Digest>(257, leaf)));
  }
}

}  // namespace
}  // namespace lethe::audit
