#include "tests/audit/log/merkle_ref.h"

namespace lethe::audit {
namespace {

size_t LargestPowerOfTwoBelow(size_t n) {
  size_t k = 1;
  while (2 * k < n) k *= 2;
  return k;
}

Entries Slice(const Entries& entries, size_t begin, size_t end) {
  return Entries(entries.begin() + static_cast<std::ptrdiff_t>(begin),
                 entries.begin() + static_cast<std::ptrdiff_t>(end));
}

// SUBPROOF(m, D[n], b)
std::vector<Sha256Digest> RefSubproof(size_t m, const Entries& entries, bool complete) {
  const size_t n = entries.size();
  if (m == n) {
    if (complete) return {};
    return {RefRoot(entries)};
  }
  const size_t k = LargestPowerOfTwoBelow(n);
  std::vector<Sha256Digest> proof;
  if (m <= k) {
    proof = RefSubproof(m, Slice(entries, 0, k), complete);
    proof.push_back(RefRoot(Slice(entries, k, n)));
  } else {
    proof = RefSubproof(m - k, Slice(entries, k, n), false);
    proof.push_back(RefRoot(Slice(entries, 0, k)));
  }
  return proof;
}

}  // namespace

Sha256Digest RefRoot(const Entries& entries) {
  if (entries.empty()) return Sha256Of("");
  if (entries.size() == 1) return Sha256Of(std::string(1, '\0') + entries[0]);
  const size_t k = LargestPowerOfTwoBelow(entries.size());
  const Sha256Digest left = RefRoot(Slice(entries, 0, k));
  const Sha256Digest right = RefRoot(Slice(entries, k, entries.size()));
  return Sha256().Update("\x01").Update(left).Update(right).Finish();
}

std::vector<Sha256Digest> RefInclusionProof(size_t leaf_index, const Entries& entries) {
  const size_t n = entries.size();
  if (n == 1) return {};
  const size_t k = LargestPowerOfTwoBelow(n);
  std::vector<Sha256Digest> proof;
  if (leaf_index < k) {
    proof = RefInclusionProof(leaf_index, Slice(entries, 0, k));
    proof.push_back(RefRoot(Slice(entries, k, n)));
  } else {
    proof = RefInclusionProof(leaf_index - k, Slice(entries, k, n));
    proof.push_back(RefRoot(Slice(entries, 0, k)));
  }
  return proof;
}

std::vector<Sha256Digest> RefConsistencyProof(size_t old_size, const Entries& entries) {
  return RefSubproof(old_size, entries, true);
}

}  // namespace lethe::audit
