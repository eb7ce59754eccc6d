#include "audit/log/note.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "audit/crypto/encoding.h"
#include "audit/log/utf8.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr char kSignaturePrefix[] = "\xe2\x80\x94 ";  // U+2014, space
constexpr char kEd25519KeyType = '\x01';
constexpr size_t kKeyIdBytes = 4;

std::string KeyIdBytes(uint32_t key_id) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>((key_id >> shift) & 0xff));
  }
  return bytes;
}

uint32_t KeyIdFromBytes(absl::string_view bytes) {
  uint32_t key_id = 0;
  for (size_t i = 0; i < kKeyIdBytes; ++i) key_id = (key_id << 8) | static_cast<uint8_t>(bytes[i]);
  return key_id;
}

absl::StatusOr<NoteSignature> ParseSignatureLine(absl::string_view line) {
  const absl::string_view prefix(kSignaturePrefix);
  if (line.substr(0, prefix.size()) != prefix) {
    return absl::InvalidArgumentError(
        "note: signature line does not begin with U+2014 and a space");
  }
  const std::vector<absl::string_view> fields = absl::StrSplit(line.substr(prefix.size()), ' ');
  if (fields.size() != 2) {
    return absl::InvalidArgumentError("note: signature line has no name and signature");
  }
  LETHE_RETURN_IF_ERROR(ValidateKeyName(fields[0]));
  absl::StatusOr<std::string> bytes = Base64Decode(fields[1]);
  if (!bytes.ok() || bytes->size() <= kKeyIdBytes) {
    return absl::InvalidArgumentError("note: signature is no base64 of key id and signature");
  }
  return NoteSignature{std::string(fields[0]), KeyIdFromBytes(*bytes), bytes->substr(kKeyIdBytes)};
}

bool HasDuplicateSigner(const std::vector<NoteSignature>& signatures) {
  std::vector<std::pair<std::string, uint32_t>> signers;
  signers.reserve(signatures.size());
  for (const NoteSignature& s : signatures) signers.emplace_back(s.name, s.key_id);
  std::sort(signers.begin(), signers.end());
  return std::adjacent_find(signers.begin(), signers.end()) != signers.end();
}

}  // namespace

absl::Status ValidateKeyName(absl::string_view name) {
  if (name.empty() || !IsNoteUtf8(name) || HasUnicodeSpace(name) ||
      name.find('+') != absl::string_view::npos) {
    return absl::InvalidArgumentError("key name: want UTF-8, not empty, without spaces and '+'");
  }
  return absl::OkStatus();
}

absl::StatusOr<SignedNote> ParseNote(absl::string_view note) {
  if (note.size() > kNoteBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("note: over ", kNoteBytesMax, " bytes"));
  }
  if (!IsNoteUtf8(note)) {
    return absl::InvalidArgumentError("note: want UTF-8 without control characters");
  }
  // The last empty line: signature lines cannot hold one, the text may.
  const size_t split = note.rfind("\n\n");
  if (split == absl::string_view::npos) {
    return absl::InvalidArgumentError("note: no empty line before the signatures");
  }
  SignedNote result;
  result.text = std::string(note.substr(0, split + 1));
  absl::string_view lines = note.substr(split + 2);
  if (lines.empty() || lines.back() != '\n') {
    return absl::InvalidArgumentError("note: no signature, or the last line has no newline");
  }
  lines.remove_suffix(1);
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) {
    if (result.signatures.size() == kNoteSignaturesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("note: over ", kNoteSignaturesMax, " signatures"));
    }
    LETHE_ASSIGN_OR_RETURN(NoteSignature signature, ParseSignatureLine(line));
    result.signatures.push_back(std::move(signature));
  }
  if (HasDuplicateSigner(result.signatures)) {
    return absl::InvalidArgumentError("note: two signatures with one name and key id");
  }
  return result;
}

std::string WriteNote(const SignedNote& note) {
  std::string text = note.text + "\n";
  for (const NoteSignature& signature : note.signatures) {
    absl::StrAppend(&text, kSignaturePrefix, signature.name, " ",
                    Base64Encode(KeyIdBytes(signature.key_id) + signature.signature), "\n");
  }
  return text;
}

uint32_t NoteKeyId(absl::string_view name, const Ed25519PublicKey& key) {
  const Sha256Digest hash = Sha256()
                                .Update(name)
                                .Update("\n")
                                .Update(absl::string_view(&kEd25519KeyType, 1))
                                .Update(key.raw())
                                .Finish();
  return KeyIdFromBytes(AsStringView(hash));
}

absl::StatusOr<VerifierKey> MakeVerifierKey(absl::string_view name, const Ed25519PublicKey& key) {
  LETHE_RETURN_IF_ERROR(ValidateKeyName(name));
  return VerifierKey{std::string(name), NoteKeyId(name, key), key};
}

absl::StatusOr<VerifierKey> ParseVerifierKey(absl::string_view vkey) {
  // base64 may hold '+' too, so only the first two separate fields.
  const std::vector<absl::string_view> fields = absl::StrSplit(vkey, absl::MaxSplits('+', 2));
  if (fields.size() != 3) {
    return absl::InvalidArgumentError("vkey: want name+key id+base64 key");
  }
  absl::StatusOr<std::string> key_id = HexDecode(fields[1]);
  if (!key_id.ok() || key_id->size() != kKeyIdBytes) {
    return absl::InvalidArgumentError("vkey: key id is not 8 lowercase hex digits");
  }
  absl::StatusOr<std::string> key_bytes = Base64Decode(fields[2]);
  if (!key_bytes.ok() || key_bytes->empty() || (*key_bytes)[0] != kEd25519KeyType) {
    return absl::InvalidArgumentError("vkey: key is no base64 of an Ed25519 key (type 1)");
  }
  LETHE_ASSIGN_OR_RETURN(const Ed25519PublicKey key,
                         Ed25519PublicKey::FromRaw(absl::string_view(*key_bytes).substr(1)));
  LETHE_ASSIGN_OR_RETURN(VerifierKey result, MakeVerifierKey(fields[0], key));
  if (result.key_id != KeyIdFromBytes(*key_id)) {
    return absl::InvalidArgumentError("vkey: key id does not belong to name and key");
  }
  return result;
}

std::string WriteVerifierKey(const VerifierKey& vkey) {
  return absl::StrCat(
      vkey.name, "+", HexEncode(KeyIdBytes(vkey.key_id)), "+",
      Base64Encode(absl::StrCat(absl::string_view(&kEd25519KeyType, 1), vkey.key.raw())));
}

NoteSignature SignNoteText(absl::string_view text, absl::string_view name,
                           const Ed25519PrivateKey& key) {
  const Ed25519Signature signature = key.Sign(text);
  return NoteSignature{std::string(name), NoteKeyId(name, key.public_key()),
                       std::string(AsStringView(signature))};
}

absl::Status VerifyNote(const SignedNote& note, const VerifierKey& vkey) {
  for (const NoteSignature& signature : note.signatures) {
    if (signature.name != vkey.name || signature.key_id != vkey.key_id) continue;
    if (!vkey.key.Verify(note.text, signature.signature)) {
      return absl::InvalidArgumentError("note: the signature by the known key is wrong");
    }
    return absl::OkStatus();
  }
  return absl::NotFoundError("note: no signature by the known key");
}

}  // namespace lethe::audit
