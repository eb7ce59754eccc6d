#include "audit/witness/add_checkpoint.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "audit/crypto/encoding.h"
#include "audit/log/decimal.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr char kOldPrefix[] = "old ";
constexpr size_t kProofHashesMax = 63;

}  // namespace

std::string WriteAddCheckpoint(const AddCheckpointRequest& request) {
  std::string body = absl::StrCat(kOldPrefix, request.old_size, "\n");
  for (const Sha256Digest& hash : request.proof) absl::StrAppend(&body, Base64Encode(hash), "\n");
  absl::StrAppend(&body, "\n", request.checkpoint);
  return body;
}

absl::StatusOr<AddCheckpointRequest> ParseAddCheckpoint(absl::string_view body) {
  const size_t split = body.find("\n\n");
  if (split == absl::string_view::npos || !absl::StartsWith(body, kOldPrefix)) {
    return absl::InvalidArgumentError(
        "add-checkpoint: want a line old, hashes, an empty line, a note");
  }
  const std::vector<absl::string_view> lines = absl::StrSplit(body.substr(0, split), '\n');
  AddCheckpointRequest request;
  LETHE_ASSIGN_OR_RETURN(request.old_size, ParseDecimal(lines[0].substr(sizeof kOldPrefix - 1)));
  if (lines.size() > kProofHashesMax + 1) {
    return absl::InvalidArgumentError("add-checkpoint: too many hashes");
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    const absl::StatusOr<std::string> hash = Base64Decode(lines[i]);
    if (!hash.ok() || hash->size() != kSha256Bytes) {
      return absl::InvalidArgumentError("add-checkpoint: a hash is no base64 of 32 bytes");
    }
    LETHE_ASSIGN_OR_RETURN(const Sha256Digest digest, DigestFromBytes(*hash));
    request.proof.push_back(digest);
  }
  request.checkpoint = std::string(body.substr(split + 2));
  return request;
}

}  // namespace lethe::audit
