#include "audit/certificate/json_fields.h"

#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/crypto/encoding.h"
#include "audit/log/decimal.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

template <typename Bits>
std::string BigEndianHex(Bits bits) {
  std::string bytes(sizeof bits, '\0');
  for (size_t i = 0; i < sizeof bits; ++i) {
    bytes[i] = static_cast<char>((bits >> (8 * (sizeof bits - 1 - i))) & 0xff);
  }
  return HexEncode(bytes);
}

template <typename Bits>
absl::StatusOr<Bits> ParseBigEndianHex(absl::string_view hex) {
  LETHE_ASSIGN_OR_RETURN(const std::string bytes, HexDecode(hex));
  if (bytes.size() != sizeof(Bits)) {
    return absl::InvalidArgumentError(absl::StrCat("want ", 2 * sizeof(Bits), " hex digits"));
  }
  Bits bits = 0;
  for (const char byte : bytes) bits = (bits << 8) | static_cast<uint8_t>(byte);
  return bits;
}

}  // namespace

Json JsonU64(uint64_t value) { return Json::String(absl::StrCat(value)); }
Json JsonF64(double value) { return Json::String(HexF64(value)); }
Json JsonDigest(const Sha256Digest& digest) { return Json::String(HexEncode(digest)); }

std::string HexF64(double value) { return BigEndianHex(std::bit_cast<uint64_t>(value + 0.0)); }
std::string HexF32(float value) { return BigEndianHex(std::bit_cast<uint32_t>(value)); }

absl::StatusOr<double> ParseHexF64(absl::string_view hex) {
  LETHE_ASSIGN_OR_RETURN(const uint64_t bits, ParseBigEndianHex<uint64_t>(hex));
  const auto value = std::bit_cast<double>(bits);
  if (std::isnan(value)) return absl::InvalidArgumentError("want a number, got NaN");
  // Zero has one text: a second one would be a second document with the same meaning.
  if (value == 0.0 && std::signbit(value)) return absl::InvalidArgumentError("want +0, got -0");
  return value;
}

absl::StatusOr<float> ParseHexF32(absl::string_view hex) {
  LETHE_ASSIGN_OR_RETURN(const uint32_t bits, ParseBigEndianHex<uint32_t>(hex));
  const auto value = std::bit_cast<float>(bits);
  if (std::isnan(value)) return absl::InvalidArgumentError("want a number, got NaN");
  return value;
}

JsonReader::JsonReader(const Json& value, std::string path, absl::Status* status)
    : value_(&value), path_(std::move(path)), status_(status) {
  if (value.object() == nullptr) Fail("", "want an object");
}

void JsonReader::Fail(absl::string_view key, absl::string_view what) {
  if (!status_->ok()) return;
  const absl::string_view dot = path_.empty() || key.empty() ? "" : ".";
  *status_ = absl::InvalidArgumentError(absl::StrCat(path_, dot, key, ": ", what));
}

bool JsonReader::Has(absl::string_view key) const {
  if (value_->object() == nullptr) return false;
  for (const JsonMember& member : *value_->object()) {
    if (member.key == key) return true;
  }
  return false;
}

const Json* JsonReader::Take(absl::string_view key) {
  if (!status_->ok()) return nullptr;
  for (const JsonMember& member : *value_->object()) {
    if (member.key != key) continue;
    ++num_taken_;
    return &member.value;
  }
  Fail(key, "field is missing");
  return nullptr;
}

template <typename T>
T JsonReader::ValueOr(absl::string_view key, absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  const absl::string_view message = value.status().message();
  Fail(key, message);
  return T{};
}

std::string JsonReader::String(absl::string_view key) {
  const Json* value = Take(key);
  if (value == nullptr) return "";
  if (value->string() == nullptr) {
    Fail(key, "want a string");
    return "";
  }
  return *value->string();
}

void JsonReader::Constant(absl::string_view key, absl::string_view want) {
  if (String(key) != want) Fail(key, absl::StrCat("want ", want));
}

bool JsonReader::Bool(absl::string_view key) {
  const Json* value = Take(key);
  if (value == nullptr) return false;
  if (value->boolean() == nullptr) {
    Fail(key, "want true or false");
    return false;
  }
  return *value->boolean();
}

uint64_t JsonReader::U64(absl::string_view key) { return ValueOr(key, ParseDecimal(String(key))); }
double JsonReader::F64(absl::string_view key) { return ValueOr(key, ParseHexF64(String(key))); }
std::string JsonReader::Bytes(absl::string_view key) {
  return ValueOr(key, HexDecode(String(key)));
}

Sha256Digest JsonReader::Digest(absl::string_view key) {
  return ValueOr(key, HexDecodeDigest(String(key)));
}

JsonReader JsonReader::Object(absl::string_view key) {
  static const Json kEmpty = Json::MakeObject({});
  const Json* value = Take(key);
  return JsonReader(value == nullptr ? kEmpty : *value,
                    absl::StrCat(path_, path_.empty() ? "" : ".", key), status_);
}

const Json::Array* JsonReader::Array(absl::string_view key) {
  const Json* value = Take(key);
  if (value == nullptr) return nullptr;
  if (value->array() == nullptr) Fail(key, "want an array");
  return value->array();
}

std::vector<JsonReader> JsonReader::Objects(absl::string_view key) {
  std::vector<JsonReader> readers;
  const Json::Array* items = Array(key);
  if (items == nullptr) return readers;
  for (size_t i = 0; i < items->size(); ++i) {
    readers.emplace_back((*items)[i],
                         absl::StrCat(path_, path_.empty() ? "" : ".", key, "[", i, "]"), status_);
  }
  return readers;
}

std::vector<std::string> JsonReader::StringsOf(absl::string_view key, const Json::Array* items) {
  std::vector<std::string> texts;
  if (items == nullptr) return texts;
  texts.reserve(items->size());
  for (const Json& item : *items) {
    if (item.string() == nullptr) {
      Fail(key, "want strings");
      return {};
    }
    texts.push_back(*item.string());
  }
  return texts;
}

std::vector<std::string> JsonReader::Strings(absl::string_view key) {
  return StringsOf(key, Array(key));
}

std::vector<std::vector<std::string>> JsonReader::StringArrays(absl::string_view key) {
  std::vector<std::vector<std::string>> rows;
  const Json::Array* items = Array(key);
  if (items == nullptr) return rows;
  for (const Json& item : *items) {
    if (item.array() == nullptr) Fail(key, "want arrays of strings");
    rows.push_back(StringsOf(key, item.array()));
  }
  return rows;
}

void JsonReader::Finish() {
  if (status_->ok() && num_taken_ != value_->object()->size()) Fail("", "has an unknown field");
}

}  // namespace lethe::audit
