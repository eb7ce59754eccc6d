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
constexpr size_t kF32Digits = 8;

Json MatrixJson(absl::Span<const float> values, size_t num_columns) {
  Json::Array rows;
  for (size_t begin = 0; begin < values.size(); begin += num_columns) {
    std::string row;
    row.reserve(num_columns * kF32Digits);
    for (const float value : values.subspan(begin, num_columns)) row += HexF32(value);
    rows.push_back(Json::String(row));
  }
  return Json::MakeArray(std::move(rows));
}

std::vector<float> ReadMatrix(absl::string_view key, uint64_t num_rows, uint64_t num_columns,
                              JsonReader* reader) {
  const std::vector<std::string> rows = reader->Strings(key);
  if (rows.size() != num_rows) {
    reader->Fail(key, "want one row per token id");
    return {};
  }
  std::vector<float> values;
  values.reserve(num_rows * num_columns);
  for (const std::string& row : rows) {
    if (row.size() != num_columns * kF32Digits) {
      reader->Fail(key, "want 8 hex digits per column");
      return {};
    }
    for (size_t i = 0; i < row.size(); i += kF32Digits) {
      const absl::StatusOr<float> value = ParseHexF32(absl::string_view(row).substr(i, kF32Digits));
      if (!value.ok() || !std::isfinite(*value)) {
        reader->Fail(key, "want finite numbers");
        return {};
      }
      values.push_back(*value);
    }
  }
  return values;
}

Json HeadJson(const BundleHead& head) {
  std::string classes;
  Json::Array a;
  for (const KeyClass key_class : head.classes) classes.push_back(static_cast<char>(key_class));
  for (const double value : head.a) a.push_back(JsonF64(value));
  return Json::MakeObject({{"a", Json::MakeArray(std::move(a))},
                           {"boxMass", JsonF64(head.box_mass)},
                           {"classes", Json::String(classes)},
                           {"group", JsonU64(head.group)},
                           {"head", JsonU64(head.head)},
                           {"keyDim", JsonU64(head.key_dim)},
                           {"keys", MatrixJson(head.keys, head.key_dim)},
                           {"layer", JsonU64(head.layer)},
                           {"rho", JsonF64(head.rho)},
                           {"ridge", JsonF64(head.ridge)},
                           {"sigma", JsonF64(head.sigma)},
                           {"tokenIds", TokenIdRangesJson(head.token_ids)},
                           {"valueDim", JsonU64(head.value_dim)},
                           {"values", MatrixJson(head.values, head.value_dim)}});
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
  if (head.value_dim < 1 || head.value_dim > kDimMax) reader.Fail("valueDim", "want 1 to 65536");
  head.token_ids = ReadTokenIds("tokenIds", kOpeningIdsMax, &reader);
  head.classes = ReadClasses(&reader);
  head.a = ReadA(&reader);
  if (head.classes.size() != head.token_ids.size() || head.a.size() != head.token_ids.size()) {
    reader.Fail("classes", "want one class and one a per token id");
  }
  head.keys = ReadMatrix("keys", head.token_ids.size(), head.key_dim, &reader);
  head.values = ReadMatrix("values", head.token_ids.size(), head.value_dim, &reader);
  reader.Finish();
  return head;
}

absl::Status CheckHead(const BundleHead& head) {
  const size_t n = head.token_ids.size();
  const bool dims = head.key_dim >= 1 && head.key_dim <= kDimMax && head.value_dim >= 1 &&
                    head.value_dim <= kDimMax;
  if (!dims || head.classes.size() != n || head.a.size() != n ||
      head.keys.size() != n * head.key_dim || head.values.size() != n * head.value_dim) {
    return absl::InvalidArgumentError("bundle: a head's arrays have different lengths");
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
