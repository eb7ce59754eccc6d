#include "audit/log/leaf.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "audit/crypto/encoding.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr char kBeforeDigest[] =
    R"({"apiVersion":"0.0.2","kind":"hashedrekord","spec":{"hashedRekordV002":)"
    R"({"data":{"algorithm":"SHA2_256","digest":")";
constexpr char kBeforeSignature[] = R"("},"signature":{"content":")";
constexpr char kBeforeKey[] =
    R"(","verifier":{"keyDetails":"PKIX_ED25519","publicKey":{"rawBytes":")";
constexpr char kAfterKey[] = R"("}}}}}})";

constexpr size_t Base64Length(size_t num_bytes) { return (num_bytes + 2) / 3 * 4; }

// Takes `text` off the front of *bytes.
bool TakeText(absl::string_view* bytes, absl::string_view text) {
  if (bytes->substr(0, text.size()) != text) return false;
  bytes->remove_prefix(text.size());
  return true;
}

// Takes the base64 of exactly num_bytes bytes off the front.
absl::StatusOr<std::string> TakeBase64(absl::string_view* bytes, size_t num_bytes) {
  const absl::string_view base64 = bytes->substr(0, Base64Length(num_bytes));
  LETHE_ASSIGN_OR_RETURN(std::string decoded, Base64Decode(base64));
  if (decoded.size() != num_bytes) return absl::InvalidArgumentError("wrong length");
  bytes->remove_prefix(base64.size());
  return decoded;
}

}  // namespace

std::string WriteLogLeaf(const LogLeaf& leaf) {
  std::string bytes = absl::StrCat(kBeforeDigest, Base64Encode(leaf.pae_digest), kBeforeSignature,
                                   Base64Encode(leaf.signature), kBeforeKey,
                                   Base64Encode(leaf.key.SpkiDer()), kAfterKey);
  LETHE_CHECK(bytes.size() == kLogLeafBytes);
  return bytes;
}

absl::StatusOr<LogLeaf> ParseLogLeaf(absl::string_view bytes) {
  const absl::Status malformed =
      absl::InvalidArgumentError("leaf: want a hashedrekord of 406 bytes");
  if (bytes.size() != kLogLeafBytes || !TakeText(&bytes, kBeforeDigest)) return malformed;
  absl::StatusOr<std::string> digest = TakeBase64(&bytes, kSha256Bytes);
  if (!digest.ok() || !TakeText(&bytes, kBeforeSignature)) return malformed;
  absl::StatusOr<std::string> signature = TakeBase64(&bytes, sizeof(Ed25519Signature));
  if (!signature.ok() || !TakeText(&bytes, kBeforeKey)) return malformed;
  absl::StatusOr<std::string> spki = TakeBase64(&bytes, kEd25519SpkiBytes);
  if (!spki.ok() || bytes != kAfterKey) return malformed;
  LETHE_ASSIGN_OR_RETURN(const Ed25519PublicKey key, Ed25519PublicKey::FromSpkiDer(*spki));
  LogLeaf leaf{{}, {}, key};
  std::copy(digest->begin(), digest->end(), leaf.pae_digest.begin());
  std::copy(signature->begin(), signature->end(), leaf.signature.begin());
  return leaf;
}

}  // namespace lethe::audit
