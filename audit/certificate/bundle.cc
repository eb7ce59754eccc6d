#include "audit/certificate/bundle.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

#include "audit/certificate/id_ranges.h"
#include "audit/certificate/json.h"
#include "audit/certificate/json_fields.h"
#include "audit/certificate/opening.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

constexpr uint64_t kDimMax = uint64_t{1} << 16;

size_t NumDigits(NumberFormat format) { return format == NumberFormat::kF64 ? 16 : 8; }

std::string HexOf(double value, NumberFormat format) {
  return format == NumberFormat::kF64 ? HexF64(value) : HexF32(static_cast<float>(value));
}

absl::StatusOr<double> ParseHex(absl::string_view hex, NumberFormat format) {
  if (format == NumberFormat::kF64) return ParseHexF64(hex);
  LETHE_ASSIGN_OR_RETURN(const float value, ParseHexF32(hex));
  return static_cast<double>(value);
}

Json MatrixJson(absl::Span<const double> values, size_t num_rows, size_t num_columns,
                NumberFormat format) {
  Json::Array rows;
  for (size_t i = 0; i < num_rows; ++i) {
    std::string row;
    row.reserve(num_columns * NumDigits(format));
    for (const double value : values.subspan(i * num_columns, num_columns)) {
      row += HexOf(value, format);
    }
    rows.push_back(Json::String(row));
  }
  return Json::MakeArray(std::move(rows));
}

struct Shape {
  uint64_t num_rows = 0;
  uint64_t num_columns = 0;
};

std::vector<double> ReadMatrix(absl::string_view key, const std::vector<std::string>& rows,
                               const Shape& shape, NumberFormat format, JsonReader* reader) {
  if (rows.size() != shape.num_rows) {
    reader->Fail(key, "want one row per token id");
    return {};
  }
  const size_t num_digits = NumDigits(format);
  std::vector<double> values;
  values.reserve(shape.num_rows * shape.num_columns);
  for (const std::string& row : rows) {
    if (row.size() != shape.num_columns * num_digits) {
      reader->Fail(key, "want 8 hex digits per column, or 16 in all rows of keys and values");
      return {};
    }
    for (size_t i = 0; i < row.size(); i += num_digits) {
      const absl::StatusOr<double> value =
          ParseHex(absl::string_view(row).substr(i, num_digits), format);
      if (!value.ok() || !std::isfinite(*value)) {
        reader->Fail(key, "want finite numbers");
        return {};
      }
      values.push_back(*value);
    }
  }
  return values;
}

void ReadInputs(JsonReader* reader, BundleHead* head) {
  const std::vector<std::string> keys = reader->Strings("keys");
  const bool wide =
      !keys.empty() && keys[0].size() == head->key_dim * NumDigits(NumberFormat::kF64);
  head->format = wide ? NumberFormat::kF64 : NumberFormat::kF32;
  const uint64_t n = head->token_ids.size();
  head->keys = ReadMatrix("keys", keys, {n, head->key_dim}, head->format, reader);
  head->values =
      ReadMatrix("values", reader->Strings("values"), {n, head->value_dim}, head->format, reader);
}

// One string: high word, low word.
std::string HexWide(const svdd::DoubleDouble& x) { return HexF64(x.hi) + HexF64(x.lo); }

svdd::DoubleDouble ReadWide(absl::string_view key, absl::string_view hex, JsonReader* reader) {
  const size_t num_digits = NumDigits(NumberFormat::kF64);
  if (hex.size() != 2 * num_digits) {
    reader->Fail(key, "want 32 hex digits, two f64 a number");
    return {};
  }
  double words[2] = {0.0, 0.0};
  for (size_t i = 0; i < 2; ++i) {
    const absl::StatusOr<double> word = ParseHexF64(hex.substr(i * num_digits, num_digits));
    if (word.ok()) {
      words[i] = *word;
    } else {
      reader->Fail(key, word.status().message());
    }
  }
  return {words[0], words[1]};
}

Json WitnessJson(const svdd::Witness& witness) {
  Json::Array a;
  for (const svdd::DoubleDouble& x : witness.a) a.push_back(Json::String(HexWide(x)));
  return Json::MakeObject(
      {{"a", Json::MakeArray(std::move(a))}, {"lambda", Json::String(HexWide(witness.lambda))}});
}

svdd::Witness ReadWitness(JsonReader reader) {
  svdd::Witness witness;
  for (const std::string& hex : reader.Strings("a")) {
    witness.a.push_back(ReadWide("a", hex, &reader));
  }
  witness.lambda = ReadWide("lambda", reader.String("lambda"), &reader);
  reader.Finish();
  return witness;
}

BundleTail ReadTail(const BundleHead& head, JsonReader* reader) {
  const std::vector<std::string> keys = reader->Strings("tailKeys");
  const std::vector<std::string> values = reader->Strings("tailValues");
  if (keys.size() != values.size()) reader->Fail("tailValues", "want one row per row of tailKeys");
  BundleTail tail;
  tail.keys = ReadMatrix("tailKeys", keys, {keys.size(), head.key_dim}, head.format, reader);
  tail.values =
      ReadMatrix("tailValues", values, {keys.size(), head.value_dim}, head.format, reader);
  return tail;
}

Json HeadJson(const BundleHead& head) {
  std::string classes;
  Json::Array a;
  for (const KeyClass key_class : head.classes) classes.push_back(static_cast<char>(key_class));
  for (const double value : head.a) a.push_back(JsonF64(value));
  Json::Object object = {
      {"a", Json::MakeArray(std::move(a))},
      {"boxMass", JsonF64(head.box_mass)},
      {"classes", Json::String(classes)},
      {"group", JsonU64(head.group)},
      {"head", JsonU64(head.head)},
      {"keyDim", JsonU64(head.key_dim)},
      {"keys", MatrixJson(head.keys, head.token_ids.size(), head.key_dim, head.format)},
      {"layer", JsonU64(head.layer)},
      {"rho", JsonF64(head.rho)},
      {"ridge", JsonF64(head.ridge)},
      {"sigma", JsonF64(head.sigma)},
      {"tokenIds", TokenIdRangesJson(head.token_ids)},
      {"valueDim", JsonU64(head.value_dim)},
      {"values", MatrixJson(head.values, head.token_ids.size(), head.value_dim, head.format)}};
  if (head.tail.has_value()) {
    const size_t num_rows = head.tail->keys.size() / head.key_dim;
    object.push_back(
        {"tailKeys", MatrixJson(head.tail->keys, num_rows, head.key_dim, head.format)});
    object.push_back(
        {"tailValues", MatrixJson(head.tail->values, num_rows, head.value_dim, head.format)});
  }
  if (head.witness.has_value()) object.push_back({"witness", WitnessJson(*head.witness)});
  return Json::MakeObject(std::move(object));
}

std::vector<KeyClass> ReadClasses(JsonReader* reader) {
  std::vector<KeyClass> classes;
  for (const char c : reader->String("classes")) {
    if (c != 'S' && c != 'E' && c != 'R') {
      reader->Fail("classes", "want S, E or R per key");
      return {};
    }
    classes.push_back(static_cast<KeyClass>(c));
  }
  return classes;
}

std::vector<double> ReadA(JsonReader* reader) {
  std::vector<double> a;
  for (const std::string& hex : reader->Strings("a")) {
    const absl::StatusOr<double> value = ParseHexF64(hex);
    if (!value.ok()) {
      reader->Fail("a", value.status().message());
      return {};
    }
    a.push_back(*value);
  }
  return a;
}

BundleHead ReadHead(JsonReader reader) {
  BundleHead head;
  head.layer = reader.U64("layer");
  head.group = reader.U64("group");
  head.head = reader.U64("head");
  head.sigma = reader.F64("sigma");
  head.box_mass = reader.F64("boxMass");
  head.ridge = reader.F64("ridge");
  head.rho = reader.F64("rho");
  head.key_dim = reader.U64("keyDim");
  head.value_dim = reader.U64("valueDim");
  if (head.key_dim < 1 || head.key_dim > kDimMax) reader.Fail("keyDim", "want 1 to 65536");
  if (head.value_dim > kDimMax) reader.Fail("valueDim", "want 0 to 65536");
  head.token_ids = ReadTokenIds("tokenIds", kOpeningIdsMax, &reader);
  head.classes = ReadClasses(&reader);
  head.a = ReadA(&reader);
  if (head.classes.size() != head.token_ids.size() || head.a.size() != head.token_ids.size()) {
    reader.Fail("classes", "want one class and one a per token id");
  }
  ReadInputs(&reader, &head);
  if (reader.Has("tailKeys")) head.tail = ReadTail(head, &reader);
  if (reader.Has("witness")) head.witness = ReadWitness(reader.Object("witness"));
  reader.Finish();
  return head;
}

absl::Status CheckHead(const BundleHead& head) {
  const size_t n = head.token_ids.size();
  const bool dims = head.key_dim >= 1 && head.key_dim <= kDimMax && head.value_dim <= kDimMax;
  if (!dims || head.classes.size() != n || head.a.size() != n ||
      head.keys.size() != n * head.key_dim || head.values.size() != n * head.value_dim) {
    return absl::InvalidArgumentError("bundle: a head's arrays have different lengths");
  }
  if (head.tail.has_value() &&
      (head.tail->keys.size() % head.key_dim != 0 ||
       head.tail->keys.size() / head.key_dim * head.value_dim != head.tail->values.size())) {
    return absl::InvalidArgumentError("bundle: a head's tail has no value per key");
  }
  if (!IsStrictlyAscending(head.token_ids)) {
    return absl::InvalidArgumentError("bundle: a head's token ids are not ascending");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> WriteBundle(const ProofBundle& bundle) {
  Json::Array parts;
  for (const StatePart& part : bundle.parts) {
    if (!IsPrintableAscii(part.name)) {
      return absl::InvalidArgumentError("bundle: a part's name is not printable ASCII");
    }
    parts.push_back(
        Json::MakeObject({{"hash", JsonDigest(part.hash)}, {"name", Json::String(part.name)}}));
  }
  Json::Array heads;
  for (const BundleHead& head : bundle.heads) {
    LETHE_RETURN_IF_ERROR(CheckHead(head));
    heads.push_back(HeadJson(head));
  }
  return WriteJson(Json::MakeObject({{"_type", Json::String(kBundleType)},
                                     {"heads", Json::MakeArray(std::move(heads))},
                                     {"leaf", JsonDigest(bundle.leaf_hash)},
                                     {"parts", Json::MakeArray(std::move(parts))}}));
}

absl::StatusOr<ProofBundle> ParseBundle(absl::string_view bytes) {
  if (bytes.size() > kBundleBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("bundle: over ", kBundleBytesMax, " bytes"));
  }
  LETHE_ASSIGN_OR_RETURN(const Json json, ParseJson(bytes, JsonSyntax::kCanonical));
  absl::Status status;
  JsonReader reader(json, "", &status);
  ProofBundle bundle;
  reader.Constant("_type", kBundleType);
  bundle.leaf_hash = reader.Digest("leaf");
  for (JsonReader& part : reader.Objects("parts")) {
    bundle.parts.push_back({part.String("name"), part.Digest("hash")});
    part.Finish();
  }
  for (JsonReader& head : reader.Objects("heads")) bundle.heads.push_back(ReadHead(head));
  reader.Finish();
  LETHE_RETURN_IF_ERROR(status);
  return bundle;
}

}  // namespace lethe::audit
