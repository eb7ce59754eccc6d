#include "server/session_registry/page_token.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "audit/crypto/encoding.h"
#include "audit/crypto/secret.h"
#include "audit/crypto/sha256.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"

namespace lethe {
namespace {

// Of the whole token: a position of a caller's own making would be a row that is not there.
uint64_t Seal(absl::string_view scope, const PageToken& token) {
  static const auto* key = new audit::Secret32(audit::Secret32::Random());
  ByteWriter sealed;
  sealed.String(scope);
  sealed.U64(token.epoch);
  sealed.U64(token.length);
  sealed.U64(token.position);
  const audit::Sha256Digest digest = audit::HmacSha256(key->bytes(), sealed.bytes());
  uint64_t hash = 0;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash;
}

absl::Status BadToken() {
  return InvalidFieldError("page_token", "next_page_token of the same listing, or empty");
}

}  // namespace

std::string WritePageToken(absl::string_view scope, const PageToken& token) {
  ByteWriter writer;
  writer.U64(Seal(scope, token));
  writer.U64(token.epoch);
  writer.U64(token.length);
  writer.U64(token.position);
  return audit::HexEncode(absl::string_view(writer.bytes()));
}

absl::StatusOr<PageToken> ParsePageToken(absl::string_view scope, absl::string_view text) {
  const absl::StatusOr<std::string> bytes = audit::HexDecode(text);
  if (!bytes.ok() || bytes->size() != 4 * sizeof(uint64_t)) return BadToken();
  ByteReader reader(*bytes);
  uint64_t hash = 0;
  PageToken token;
  for (uint64_t* field : {&hash, &token.epoch, &token.length, &token.position}) {
    LETHE_RETURN_IF_ERROR(reader.U64(field));
  }
  if (hash != Seal(scope, token)) return BadToken();
  return token;
}

absl::StatusOr<int64_t> PageSize(int64_t requested, int64_t default_size, int64_t max_size) {
  if (requested < 0) return InvalidFieldError("page_size", absl::StrCat("0 to ", max_size));
  return requested == 0 ? default_size : std::min(requested, max_size);
}

absl::Status HistoryChangedError() {
  return WithErrorInfo(
      absl::AbortedError("page_token: the session changed since the first page; list anew"),
      {"HISTORY_CHANGED", {{"field", "page_token"}}});
}

}  // namespace lethe
