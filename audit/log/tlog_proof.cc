#include "audit/log/tlog_proof.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/crypto/encoding.h"
#include "audit/log/decimal.h"
#include "audit/log/note.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr char kMagic[] = "c2sp.org/tlog-proof@v1";
constexpr char kExtraPrefix[] = "extra ";
constexpr char kIndexPrefix[] = "index ";
constexpr size_t kProofHashesMax = 63;
constexpr size_t kProofBytesMax = size_t{64} << 10;

// Takes the text before the next newline off `file`.
absl::StatusOr<absl::string_view> TakeLine(absl::string_view* file) {
  const size_t end = file->find('\n');
  if (end == absl::string_view::npos) {
    return absl::InvalidArgumentError("proof: ends before the checkpoint");
  }
  const absl::string_view line = file->substr(0, end);
  file->remove_prefix(end + 1);
  return line;
}

bool HasPrefix(absl::string_view line, absl::string_view prefix) {
  return line.substr(0, prefix.size()) == prefix;
}

}  // namespace

std::string WriteTlogProof(const TlogProof& proof) {
  std::string file = absl::StrCat(kMagic, "\n");
  if (proof.extra.has_value()) {
    absl::StrAppend(&file, kExtraPrefix, Base64Encode(*proof.extra), "\n");
  }
  absl::StrAppend(&file, kIndexPrefix, proof.leaf_index, "\n");
  for (const Sha256Digest& hash : proof.hashes) absl::StrAppend(&file, Base64Encode(hash), "\n");
  absl::StrAppend(&file, "\n", proof.checkpoint);
  return file;
}

absl::StatusOr<TlogProof> ParseTlogProof(absl::string_view file) {
  if (file.size() > kProofBytesMax + kNoteBytesMax) {
    return absl::InvalidArgumentError("proof: file is too long");
  }
  LETHE_ASSIGN_OR_RETURN(absl::string_view line, TakeLine(&file));
  if (line != kMagic) {
    return absl::InvalidArgumentError(absl::StrCat("proof: first line is not ", kMagic));
  }
  TlogProof proof;
  LETHE_ASSIGN_OR_RETURN(line, TakeLine(&file));
  if (HasPrefix(line, kExtraPrefix)) {
    absl::StatusOr<std::string> extra = Base64Decode(line.substr(sizeof kExtraPrefix - 1));
    if (!extra.ok()) return absl::InvalidArgumentError("proof: extra is no base64");
    proof.extra = *std::move(extra);
    LETHE_ASSIGN_OR_RETURN(line, TakeLine(&file));
  }
  if (!HasPrefix(line, kIndexPrefix)) return absl::InvalidArgumentError("proof: no index line");
  absl::StatusOr<uint64_t> leaf_index = ParseDecimal(line.substr(sizeof kIndexPrefix - 1));
  if (!leaf_index.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("proof: index: ", leaf_index.status().message()));
  }
  proof.leaf_index = *leaf_index;
  while (true) {
    LETHE_ASSIGN_OR_RETURN(line, TakeLine(&file));
    if (line.empty()) break;
    if (proof.hashes.size() == kProofHashesMax) {
      return absl::InvalidArgumentError(absl::StrCat("proof: over ", kProofHashesMax, " hashes"));
    }
    absl::StatusOr<std::string> hash = Base64Decode(line);
    if (!hash.ok() || hash->size() != kSha256Bytes) {
      return absl::InvalidArgumentError("proof: a hash is no base64 of 32 bytes");
    }
    LETHE_ASSIGN_OR_RETURN(const Sha256Digest digest, DigestFromBytes(*hash));
    proof.hashes.push_back(digest);
  }
  proof.checkpoint = std::string(file);
  return proof;
}

}  // namespace lethe::audit
