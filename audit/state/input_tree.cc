#include "audit/state/input_tree.h"

#include <algorithm>
#include <cstddef>

#include "kernels/base/check.h"

namespace lethe::audit {
namespace {

constexpr char kNodePrefix = 0x01;
constexpr char kRootPrefix = 0x02;
constexpr uint8_t kEndMask = 0x1f;  // five low bits: 32 children on average

bool EndsRun(const Sha256Digest& last, uint64_t num_children) {
  if (num_children >= InputTree::kMaxChildren) return true;
  return num_children >= InputTree::kMinChildren && (last.back() & kEndMask) == 0;
}

// The node over hashes[begin, end) and, when not null, one more child.
Sha256Digest NodeHash(const std::vector<Sha256Digest>& hashes, uint64_t begin, uint64_t end,
                      const Sha256Digest* carry) {
  Sha256 sha;
  sha.Update(absl::string_view(&kNodePrefix, 1));
  for (uint64_t i = begin; i < end; ++i) sha.Update(hashes[i]);
  if (carry != nullptr) sha.Update(*carry);
  return sha.Finish();
}

Sha256Digest RootHash(uint64_t num_leaves, const Sha256Digest* top) {
  Sha256 sha;
  sha.Update(absl::string_view(&kRootPrefix, 1));
  sha.Update(absl::string_view(reinterpret_cast<const char*>(&num_leaves), sizeof num_leaves));
  if (top != nullptr) sha.Update(*top);
  return sha.Finish();
}

// Replaces `removed` elements from `begin` on. What is left behind the end is overwritten.
void Splice(uint64_t begin, uint64_t removed, const std::vector<Sha256Digest>& inserted,
            std::vector<Sha256Digest>* hashes) {
  const uint64_t common = std::min<uint64_t>(removed, inserted.size());
  const auto at = [&](uint64_t i) { return hashes->begin() + static_cast<std::ptrdiff_t>(i); };
  const auto rest = inserted.begin() + static_cast<std::ptrdiff_t>(common);
  std::copy(inserted.begin(), rest, at(begin));
  if (rest != inserted.end()) {
    hashes->insert(at(begin + common), rest, inserted.end());
    return;
  }
  const auto end = std::move(at(begin + removed), hashes->end(), at(begin + common));
  std::fill(end, hashes->end(), Sha256Digest{});
  hashes->erase(end, hashes->end());
}

}  // namespace

Sha256Digest InputTree::LeafHash(absl::string_view key_bytes, absl::string_view value_bytes) {
  return Sha256().Update(key_bytes).Update(value_bytes).Finish();
}

uint64_t InputTree::OpenBegin(size_t level) const {
  if (level + 1 >= levels_.size() || levels_[level + 1].node_ends.empty()) return 0;
  return levels_[level + 1].node_ends.back();
}

void InputTree::AppendAt(size_t level, const Sha256Digest& hash) {
  if (levels_.size() <= level) levels_.resize(level + 1);
  std::vector<Sha256Digest>& hashes = levels_[level].hashes;
  hashes.push_back(hash);
  const uint64_t begin = OpenBegin(level);
  const uint64_t end = hashes.size();
  if (!EndsRun(hash, end - begin)) return;
  const Sha256Digest node = NodeHash(hashes, begin, end, nullptr);
  if (levels_.size() <= level + 1) levels_.resize(level + 2);
  levels_[level + 1].node_ends.push_back(end);
  AppendAt(level + 1, node);
}

void InputTree::Append(const Sha256Digest& leaf_hash) { AppendAt(0, leaf_hash); }

void InputTree::Truncate(uint64_t num_leaves) {
  LETHE_CHECK(num_leaves <= this->num_leaves());
  uint64_t keep = num_leaves;
  for (size_t level = 0; level < levels_.size(); ++level) {
    Level& here = levels_[level];
    if (level > 0) {
      // Nodes whose children all stay.
      const auto end = std::upper_bound(here.node_ends.begin(), here.node_ends.end(), keep);
      keep = static_cast<uint64_t>(end - here.node_ends.begin());
      here.node_ends.resize(keep);
    }
    for (uint64_t i = keep; i < here.hashes.size(); ++i) here.hashes[i].fill(0);
    here.hashes.resize(keep);
  }
}

void InputTree::Erase(uint64_t i) {
  LETHE_CHECK(i < num_leaves());
  Replace(0, i, 1, {});
}

void InputTree::Replace(size_t level, uint64_t begin, uint64_t removed,
                        const std::vector<Sha256Digest>& inserted) {
  if (levels_.size() <= level + 1) levels_.resize(level + 2);
  std::vector<Sha256Digest>& hashes = levels_[level].hashes;
  Splice(begin, removed, inserted, &hashes);
  std::vector<uint64_t>& ends = levels_[level + 1].node_ends;
  // Runs are cut anew from the first that holds `begin` to the first that ends where one did before.
  const auto first = std::upper_bound(ends.begin(), ends.end(), begin);
  auto last = first;
  uint64_t run = first == ends.begin() ? 0 : *(first - 1);
  const uint64_t moved = inserted.size() - removed;  // modulo 2^64: of later places
  std::vector<uint64_t> new_ends;
  std::vector<Sha256Digest> nodes;
  bool meets = false;
  for (uint64_t i = run; i < hashes.size() && !meets; ++i) {
    if (!EndsRun(hashes[i], i + 1 - run)) continue;
    nodes.push_back(NodeHash(hashes, run, i + 1, nullptr));
    run = i + 1;
    new_ends.push_back(run);
    if (run < begin + inserted.size()) continue;
    last = std::lower_bound(last, ends.end(), run - moved);
    meets = last != ends.end() && *last == run - moved;
  }
  last = meets ? last + 1 : ends.end();
  for (auto end = last; end != ends.end(); ++end) *end += moved;
  const auto place = static_cast<uint64_t>(first - ends.begin());
  const auto num_old = static_cast<uint64_t>(last - first);
  ends.insert(ends.erase(first, last), new_ends.begin(), new_ends.end());
  if (num_old > 0 || !nodes.empty()) Replace(level + 1, place, num_old, nodes);
}

Sha256Digest InputTree::Root() const {
  if (num_leaves() == 0) return RootHash(0, nullptr);
  Sha256Digest carry{};  // the unfinished node of the level below, which is the last hash here
  bool has_carry = false;
  for (size_t level = 0;; ++level) {
    static const std::vector<Sha256Digest> kNone;
    const std::vector<Sha256Digest>& hashes =
        level < levels_.size() ? levels_[level].hashes : kNone;
    const uint64_t size = hashes.size() + (has_carry ? 1 : 0);
    if (size == 1) {
      const Sha256Digest top = has_carry ? carry : hashes[0];
      return RootHash(num_leaves(), &top);
    }
    const uint64_t begin = OpenBegin(level);
    if (begin < hashes.size() || has_carry) {
      carry = NodeHash(hashes, begin, hashes.size(), has_carry ? &carry : nullptr);
      has_carry = true;
    }
  }
}

size_t InputTree::state_bytes() const {
  size_t bytes = 0;
  for (const Level& level : levels_) {
    bytes += level.hashes.size() * sizeof(Sha256Digest) + level.node_ends.size() * sizeof(uint64_t);
  }
  return bytes;
}

Sha256Digest InputTreeRoot(const std::vector<Sha256Digest>& leaf_hashes) {
  if (leaf_hashes.empty()) return RootHash(0, nullptr);
  std::vector<Sha256Digest> level = leaf_hashes;
  while (level.size() > 1) {
    std::vector<Sha256Digest> next;
    uint64_t begin = 0;
    for (uint64_t i = 0; i < level.size(); ++i) {
      if (EndsRun(level[i], i + 1 - begin) || i + 1 == level.size()) {
        next.push_back(NodeHash(level, begin, i + 1, nullptr));
        begin = i + 1;
      }
    }
    level = std::move(next);
  }
  return RootHash(leaf_hashes.size(), &level[0]);
}

}  // namespace lethe::audit
