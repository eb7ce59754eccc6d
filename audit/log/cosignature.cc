#include "audit/log/cosignature.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "audit/crypto/encoding.h"
#include "audit/crypto/sha256.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr char kCosignatureKeyType = 0x04;
constexpr size_t kTimeBytes = 8;
constexpr size_t kCosignatureKeyIdBytes = 4;

std::string BigEndianBytes(uint64_t value, size_t num_bytes) {
  std::string bytes(num_bytes, '\0');
  for (size_t i = num_bytes; i > 0; --i, value >>= 8)
    bytes[i - 1] = static_cast<char>(value & 0xff);
  return bytes;
}

uint64_t FromBigEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

std::string CosignedBytes(absl::string_view text, uint64_t time_s) {
  return absl::StrCat("cosignature/v1\ntime ", time_s, "\n", text);
}

}  // namespace

absl::StatusOr<WitnessKey> MakeWitnessKey(absl::string_view name, const Ed25519PublicKey& key) {
  LETHE_RETURN_IF_ERROR(ValidateKeyName(name));
  const Sha256Digest hash = Sha256()
                                .Update(name)
                                .Update("\n")
                                .Update(absl::string_view(&kCosignatureKeyType, 1))
                                .Update(key.raw())
                                .Finish();
  return WitnessKey{
      std::string(name),
      static_cast<uint32_t>(FromBigEndian(AsStringView(hash).substr(0, kCosignatureKeyIdBytes))),
      key};
}

absl::StatusOr<WitnessKey> ParseWitnessKey(absl::string_view vkey) {
  // base64 may hold '+' too, so only the first two separate fields.
  const std::vector<absl::string_view> fields = absl::StrSplit(vkey, absl::MaxSplits('+', 2));
  if (fields.size() != 3) {
    return absl::InvalidArgumentError("witness key: want name+key id+base64 key");
  }
  const absl::StatusOr<std::string> bytes = Base64Decode(fields[2]);
  if (!bytes.ok() || bytes->empty() || (*bytes)[0] != kCosignatureKeyType) {
    return absl::InvalidArgumentError("witness key: is no base64 of a cosignature key (type 4)");
  }
  LETHE_ASSIGN_OR_RETURN(const Ed25519PublicKey key,
                         Ed25519PublicKey::FromRaw(absl::string_view(*bytes).substr(1)));
  LETHE_ASSIGN_OR_RETURN(WitnessKey witness, MakeWitnessKey(fields[0], key));
  if (HexEncode(BigEndianBytes(witness.key_id, kCosignatureKeyIdBytes)) != fields[1]) {
    return absl::InvalidArgumentError("witness key: key id does not belong to name and key");
  }
  return witness;
}

std::string WriteWitnessKey(const WitnessKey& witness) {
  return absl::StrCat(
      witness.name, "+", HexEncode(BigEndianBytes(witness.key_id, kCosignatureKeyIdBytes)), "+",
      Base64Encode(absl::StrCat(absl::string_view(&kCosignatureKeyType, 1), witness.key.raw())));
}

NoteSignature SignCosignature(absl::string_view text, uint64_t time_s, absl::string_view name,
                              const Ed25519PrivateKey& key) {
  const Ed25519Signature signature = key.Sign(CosignedBytes(text, time_s));
  return NoteSignature{std::string(name), MakeWitnessKey(name, key.public_key())->key_id,
                       absl::StrCat(BigEndianBytes(time_s, kTimeBytes), AsStringView(signature))};
}

absl::Status VerifyCosignature(const SignedNote& note, const WitnessKey& witness) {
  for (const NoteSignature& line : note.signatures) {
    if (line.name != witness.name || line.key_id != witness.key_id) continue;
    const absl::string_view bytes(line.signature);
    if (bytes.size() != kTimeBytes + sizeof(Ed25519Signature) ||
        !witness.key.Verify(CosignedBytes(note.text, FromBigEndian(bytes.substr(0, kTimeBytes))),
                            bytes.substr(kTimeBytes))) {
      return absl::InvalidArgumentError(
          absl::StrCat("note: the cosignature of witness ", witness.name, " is wrong"));
    }
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("note: lacks the cosignature of witness ", witness.name));
}

}  // namespace lethe::audit
