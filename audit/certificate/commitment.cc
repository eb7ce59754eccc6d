#include "audit/certificate/commitment.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "audit/log/merkle_tree.h"
#include "kernels/base/check.h"

namespace lethe::audit {
namespace {

constexpr char kTokenLabel[] = "tok";          // with its NUL
constexpr char kEvidenceLabel[] = "evidence";  // with its NUL

void AppendBigEndian(uint64_t value, std::string* out) {
  for (int shift = 56; shift >= 0; shift -= 8) {
    out->push_back(static_cast<char>((value >> shift) & 0xff));
  }
}

}  // namespace

Sha256Digest CommitToken(const Secret32& salt, uint64_t token_id) {
  std::string message(kTokenLabel, sizeof kTokenLabel);
  AppendBigEndian(token_id, &message);
  return HmacSha256(salt.bytes(), message);
}

Sha256Digest CommitState(const Secret32& salt, const Sha256Digest& state_digest) {
  return HmacSha256(salt.bytes(), AsStringView(state_digest));
}

Sha256Digest CommitEvidence(const Secret32& salt, const Sha256Digest& part_hash,
                            const std::optional<Sha256Digest>& witness_hash) {
  std::string message(kEvidenceLabel, sizeof kEvidenceLabel);
  message.append(part_hash.begin(), part_hash.end());
  if (witness_hash.has_value()) message.append(witness_hash->begin(), witness_hash->end());
  return HmacSha256(salt.bytes(), message);
}

CommittedSet CommitSet(const Secret32& salt, absl::Span<const uint64_t> token_ids) {
  std::vector<Sha256Digest> commitments;
  commitments.reserve(token_ids.size());
  for (const uint64_t token_id : token_ids) commitments.push_back(CommitToken(salt, token_id));
  std::sort(commitments.begin(), commitments.end());
  MerkleTree tree;
  for (const Sha256Digest& commitment : commitments) {
    tree.Append(MerkleLeafHash(AsStringView(commitment)));
  }
  return CommittedSet{token_ids.size(), tree.Root()};
}

Sha256Digest CommitPartition(const Secret32& salt, const PartitionRows& rows) {
  LETHE_CHECK(rows.classes.size() == rows.token_ids.size());
  LETHE_CHECK(rows.a.size() == rows.token_ids.size());
  MerkleTree tree;
  for (size_t i = 0; i < rows.token_ids.size(); ++i) {
    const Sha256Digest token = CommitToken(salt, rows.token_ids[i]);
    std::string row(token.begin(), token.end());
    row.push_back(static_cast<char>(rows.classes[i]));
    AppendBigEndian(std::bit_cast<uint64_t>(rows.a[i] + 0.0), &row);
    tree.Append(MerkleLeafHash(row));
  }
  return tree.Root();
}

}  // namespace lethe::audit
