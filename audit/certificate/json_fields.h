// JsonReader, and the text forms of numbers and bytes in our JSON formats.
//
// Equation:  u64 = decimal without leading zero; f64 and f32 = the IEEE-754 bits in hex, most
//            significant digit first; bytes = lowercase hex.
// Shapes:    f64 16 digits, f32 8 digits, digests 64 digits.
// Units:     none.
// Requires:  the Json outlives its readers; Finish is called once per object, after its fields.
// Rejects:   the first error sticks in *status (INVALID_ARGUMENT naming the field by its path);
//            every later call is then a no-op that yields a default value.
// Effects:   none beyond *status.
// Numerics:  bits are kept; NaN is refused. An f64 of -0 is written as +0 and refused when read; an
//            f32 keeps its sign (keys are hashed by their bits).
// Threads:   compatible.
#ifndef LETHE_AUDIT_CERTIFICATE_JSON_FIELDS_H_
#define LETHE_AUDIT_CERTIFICATE_JSON_FIELDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/certificate/json.h"
#include "audit/crypto/sha256.h"

namespace lethe::audit {

Json JsonU64(uint64_t value);
Json JsonF64(double value);
Json JsonDigest(const Sha256Digest& digest);
std::string HexF64(double value);
std::string HexF32(float value);
absl::StatusOr<double> ParseHexF64(absl::string_view hex);
absl::StatusOr<float> ParseHexF32(absl::string_view hex);

// Reads the fields of one object; Finish refuses fields that nobody asked for.
class JsonReader {
 public:
  JsonReader(const Json& value, std::string path, absl::Status* status);

  bool Has(absl::string_view key) const;
  std::string String(absl::string_view key);
  // A string that must be `want`.
  void Constant(absl::string_view key, absl::string_view want);
  bool Bool(absl::string_view key);
  uint64_t U64(absl::string_view key);
  double F64(absl::string_view key);
  std::string Bytes(absl::string_view key);
  Sha256Digest Digest(absl::string_view key);
  JsonReader Object(absl::string_view key);
  // One reader per item, all of which must be objects.
  std::vector<JsonReader> Objects(absl::string_view key);
  std::vector<std::string> Strings(absl::string_view key);
  std::vector<std::vector<std::string>> StringArrays(absl::string_view key);
  void Finish();

  void Fail(absl::string_view key, absl::string_view what);
  const std::string& path() const { return path_; }

 private:
  const Json* Take(absl::string_view key);
  const Json::Array* Array(absl::string_view key);
  std::vector<std::string> StringsOf(absl::string_view key, const Json::Array* items);
  template <typename T>
  T ValueOr(absl::string_view key, absl::StatusOr<T> value);

  const Json* value_;
  std::string path_;
  absl::Status* status_;
  size_t num_taken_ = 0;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_JSON_FIELDS_H_
