#include "audit/crypto/encoding.h"

#include <algorithm>
#include <array>

#include "absl/status/status.h"

namespace lethe::audit {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";
constexpr char kBase64Digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Values of characters in the table, -1 for those that are not digits.
using DigitTable = std::array<int8_t, 256>;

DigitTable MakeTable(absl::string_view digits) {
  DigitTable table;
  table.fill(-1);
  for (size_t i = 0; i < digits.size(); ++i) {
    table[static_cast<uint8_t>(digits[i])] = static_cast<int8_t>(i);
  }
  return table;
}

int DigitValue(const DigitTable& table, char c) { return table[static_cast<uint8_t>(c)]; }

const DigitTable& HexTable() {
  static const DigitTable kTable = MakeTable(kHexDigits);
  return kTable;
}

const DigitTable& Base64Table() {
  static const DigitTable kTable = MakeTable(kBase64Digits);
  return kTable;
}

// URL-safe text in the standard alphabet; an error when both alphabets occur.
absl::StatusOr<std::string> FromUrlSafe(absl::string_view base64) {
  const bool url_safe = base64.find_first_of("-_") != absl::string_view::npos;
  if (url_safe && base64.find_first_of("+/") != absl::string_view::npos) {
    return absl::InvalidArgumentError("base64 mixes the standard and the URL-safe alphabet");
  }
  std::string standard(base64);
  std::replace(standard.begin(), standard.end(), '-', '+');
  std::replace(standard.begin(), standard.end(), '_', '/');
  return standard;
}

absl::StatusOr<std::string> DecodeStandard(absl::string_view base64) {
  if (base64.size() % 4 != 0) {
    return absl::InvalidArgumentError("base64 length is not a multiple of 4");
  }
  size_t num_digits = base64.size();
  while (num_digits > 0 && base64.size() - num_digits < 2 && base64[num_digits - 1] == '=') {
    --num_digits;
  }
  std::string bytes;
  bytes.reserve(base64.size() / 4 * 3);
  uint32_t buffer = 0;
  int num_bits = 0;
  for (size_t i = 0; i < num_digits; ++i) {
    const int value = DigitValue(Base64Table(), base64[i]);
    if (value < 0) return absl::InvalidArgumentError("base64 has a character outside its alphabet");
    buffer = (buffer << 6) | static_cast<uint32_t>(value);
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes.push_back(static_cast<char>((buffer >> num_bits) & 0xff));
    }
  }
  if ((buffer & ((uint32_t{1} << num_bits) - 1)) != 0) {
    return absl::InvalidArgumentError("base64 has non-zero spare bits");
  }
  return bytes;
}

}  // namespace

std::string HexEncode(absl::string_view bytes) {
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    hex.push_back(kHexDigits[byte >> 4]);
    hex.push_back(kHexDigits[byte & 15]);
  }
  return hex;
}

std::string HexEncode(absl::Span<const uint8_t> bytes) { return HexEncode(AsStringView(bytes)); }

absl::StatusOr<std::string> HexDecode(absl::string_view hex) {
  if (hex.size() % 2 != 0) return absl::InvalidArgumentError("hex has an odd number of digits");
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int high = DigitValue(HexTable(), hex[i]);
    const int low = DigitValue(HexTable(), hex[i + 1]);
    if (high < 0 || low < 0) {
      return absl::InvalidArgumentError("hex has a character that is no lowercase hex digit");
    }
    bytes.push_back(static_cast<char>(high * 16 + low));
  }
  return bytes;
}

absl::StatusOr<Sha256Digest> HexDecodeDigest(absl::string_view hex) {
  absl::StatusOr<std::string> bytes = HexDecode(hex);
  if (!bytes.ok()) return bytes.status();
  return DigestFromBytes(*bytes);
}

std::string Base64Encode(absl::string_view bytes) {
  std::string base64;
  base64.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t num_left = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group = (group << 8) | (j < num_left ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      const uint32_t digit = (group >> (18 - 6 * j)) & 63;
      base64.push_back(j <= num_left ? kBase64Digits[digit] : '=');
    }
  }
  return base64;
}

std::string Base64Encode(absl::Span<const uint8_t> bytes) {
  return Base64Encode(AsStringView(bytes));
}

absl::StatusOr<std::string> Base64Decode(absl::string_view base64, Base64Alphabet alphabet) {
  if (alphabet == Base64Alphabet::kStandard) return DecodeStandard(base64);
  absl::StatusOr<std::string> standard = FromUrlSafe(base64);
  if (!standard.ok()) return standard.status();
  return DecodeStandard(*standard);
}

absl::StatusOr<Sha256Digest> DigestFromBytes(absl::string_view bytes) {
  if (bytes.size() != kSha256Bytes) return absl::InvalidArgumentError("digest is not 32 bytes");
  Sha256Digest digest;
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

}  // namespace lethe::audit
