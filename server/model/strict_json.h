// ParseStrictJson, ObjectReader: JSON of a model directory read with nothing overlooked.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  the JSON value outlives its ObjectReader.
// Rejects:   INVALID_ARGUMENT for malformed JSON, a duplicate, unknown or missing key, a wrong type
//            or a value out of range; the message names the key's path and what is accepted, and
//            never holds a value of the file beyond a key's name.
// Effects:   none.
// Numerics:  integers exact up to 2^63 - 1, reals as the nearest double.
// Threads:   compatible.
#ifndef LETHE_SERVER_MODEL_STRICT_JSON_H_
#define LETHE_SERVER_MODEL_STRICT_JSON_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace lethe {

// `what` names the document in messages ("config.json").
absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, absl::string_view what);

// Reads the members of one object. After the last Get, Finish reports keys that nobody asked for.
class ObjectReader {
 public:
  // `path` names the object in messages; empty for the document itself.
  static absl::StatusOr<ObjectReader> Open(const nlohmann::json& value, std::string path);

  absl::StatusOr<int64_t> Int(const char* key, int64_t min, int64_t max);
  absl::StatusOr<int64_t> MultipleOf8(const char* key, int64_t min, int64_t max);
  absl::StatusOr<double> Real(const char* key, double min, double max);
  absl::StatusOr<bool> Bool(const char* key);
  // The index of the string among `accepted`.
  absl::StatusOr<size_t> OneOf(const char* key, const std::vector<std::string>& accepted);
  absl::StatusOr<std::string> Name(const char* key, size_t max_length);
  absl::StatusOr<std::vector<double>> Reals(const char* key, int64_t count, double min, double max);
  absl::StatusOr<const nlohmann::json*> Array(const char* key, size_t min_size, size_t max_size);
  // True when the object has the key: for the few that may be left out.
  bool Has(const char* key) const { return value_->contains(key); }
  absl::Status Finish() const;

  std::string PathOf(absl::string_view key) const;

 private:
  ObjectReader(const nlohmann::json& value, std::string path)
      : value_(&value), path_(std::move(path)) {}
  absl::StatusOr<const nlohmann::json*> Member(const char* key);

  const nlohmann::json* value_;
  std::string path_;
  std::set<std::string> read_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_STRICT_JSON_H_
