#include "client/inputs_file.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "https://lethe.dev/inputs/v1";

absl::Status BadField(const char* reason) {
  return absl::InvalidArgumentError(std::string("inputs file: ") + reason);
}

Json OptionsToJson(const v1::MemoryOptions& options) {
  Json object = Json::object();
  if (options.has_ovq_slots()) {
    object["ovq_slots"] = options.ovq_slots();
  }
  if (options.has_sv_box_mass()) {
    object["sv_box_mass"] = options.sv_box_mass();
  }
  if (options.has_sv_sigma()) {
    object["sv_sigma"] = options.sv_sigma();
  }
  if (options.has_sv_ridge()) {
    object["sv_ridge"] = options.sv_ridge();
  }
  return object;
}

// Out of an int's range: -1, which the server refuses by name.
int32_t Int32Of(const Json& value) {
  const auto wide = value.get<int64_t>();
  return wide < 0 || wide > std::numeric_limits<int32_t>::max() ? -1 : static_cast<int32_t>(wide);
}

absl::StatusOr<v1::MemoryOptions> OptionsFromJson(const Json& object) {
  v1::MemoryOptions options;
  for (const auto& [key, value] : object.items()) {
    if (key == "ovq_slots" && value.is_number_integer()) {
      options.set_ovq_slots(Int32Of(value));
    } else if (key == "sv_box_mass" && value.is_number()) {
      options.set_sv_box_mass(value.get<double>());
    } else if (key == "sv_sigma" && value.is_number()) {
      options.set_sv_sigma(value.get<double>());
    } else if (key == "sv_ridge" && value.is_number()) {
      options.set_sv_ridge(value.get<double>());
    } else {
      return BadField(
          "memory_options: want only ovq_slots, sv_box_mass, sv_sigma, sv_ridge, numbers");
    }
  }
  return options;
}

Json RowsToJson(const VectorMatrix& matrix) {
  Json rows = Json::array();
  for (int64_t row = 0; row < matrix.num_rows; ++row) {
    const auto begin = matrix.values.begin() + row * matrix.num_columns;
    rows.push_back(std::vector<double>(begin, begin + matrix.num_columns));
  }
  return rows;
}

std::string WriteVectors(const VectorInputs& vectors) {
  const v1::VectorOptions& options = vectors.options;
  Json object{{"format", kFormat},
              {"vector_options",
               {{"key_dim", options.key_dim()},
                {"value_dim", options.value_dim()},
                {"sigma", options.sigma()},
                {"box_mass", options.box_mass()},
                {"ridge", options.ridge()}}},
              {"keys", RowsToJson(vectors.rows.keys)}};
  if (options.value_dim() > 0) object["values"] = RowsToJson(vectors.rows.values);
  return object.dump() + "\n";
}

absl::StatusOr<VectorMatrix> RowsFromJson(const Json& object, const char* field, int32_t width) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("inputs file: ", field, ": want a list of rows of ", width, " numbers"));
  if (!object.contains(field) || !object[field].is_array()) return bad;
  VectorMatrix matrix;
  matrix.num_columns = width;
  matrix.num_rows = static_cast<int64_t>(object[field].size());
  for (const Json& row : object[field]) {
    if (!row.is_array() || row.size() != static_cast<size_t>(width)) return bad;
    for (const Json& number : row) {
      if (!number.is_number()) return bad;
      matrix.values.push_back(number.get<double>());
    }
  }
  return matrix;
}

absl::StatusOr<v1::VectorOptions> VectorOptionsFromJson(const Json& object) {
  v1::VectorOptions options;
  for (const auto& [key, value] : object.items()) {
    if (key == "key_dim" && value.is_number_integer()) {
      options.set_key_dim(Int32Of(value));
    } else if (key == "value_dim" && value.is_number_integer()) {
      options.set_value_dim(Int32Of(value));
    } else if (key == "sigma" && value.is_number()) {
      options.set_sigma(value.get<double>());
    } else if (key == "box_mass" && value.is_number()) {
      options.set_box_mass(value.get<double>());
    } else if (key == "ridge" && value.is_number()) {
      options.set_ridge(value.get<double>());
    } else {
      return BadField(
          "vector_options: want only key_dim, value_dim, sigma, box_mass, ridge, numbers");
    }
  }
  if (options.key_dim() < 1 || options.value_dim() < 0) {
    return BadField("vector_options: want key_dim of 1 or more, value_dim of 0 or more");
  }
  return options;
}

absl::StatusOr<InputsFile> ParseVectorInputs(const Json& object) {
  if (!object["vector_options"].is_object()) return BadField("vector_options: want an object");
  VectorInputs vectors;
  LETHE_ASSIGN_OR_RETURN(vectors.options, VectorOptionsFromJson(object["vector_options"]));
  LETHE_ASSIGN_OR_RETURN(vectors.rows.keys,
                         RowsFromJson(object, "keys", vectors.options.key_dim()));
  if (vectors.options.value_dim() > 0) {
    LETHE_ASSIGN_OR_RETURN(vectors.rows.values,
                           RowsFromJson(object, "values", vectors.options.value_dim()));
    if (vectors.rows.values.num_rows != vectors.rows.keys.num_rows) {
      return BadField("values: want as many rows as keys");
    }
  }
  InputsFile file;
  file.vectors = std::move(vectors);
  return file;
}

}  // namespace

std::string WriteInputsFile(const InputsFile& file) {
  if (file.vectors) return WriteVectors(*file.vectors);
  const Json object{{"format", kFormat},
                    {"model", file.model},
                    {"memory_options", OptionsToJson(file.memory_options)},
                    {"vocab_ids", file.vocab_ids}};
  return object.dump() + "\n";
}

absl::StatusOr<InputsFile> ParseInputsFile(absl::string_view json) {
  const Json object = Json::parse(json.begin(), json.end(), nullptr, false);
  if (!object.is_object() || !object.contains("format") || object["format"] != kFormat) {
    return BadField("want a JSON object with format https://lethe.dev/inputs/v1");
  }
  if (object.contains("vector_options")) return ParseVectorInputs(object);
  if (!object.contains("model") || !object["model"].is_string()) {
    return BadField("model: want a text");
  }
  if (!object.contains("memory_options") || !object["memory_options"].is_object()) {
    return BadField("memory_options: want an object");
  }
  if (!object.contains("vocab_ids") || !object["vocab_ids"].is_array()) {
    return BadField("vocab_ids: want a list");
  }
  InputsFile file;
  file.model = object["model"].get<std::string>();
  LETHE_ASSIGN_OR_RETURN(file.memory_options, OptionsFromJson(object["memory_options"]));
  file.vocab_ids.reserve(object["vocab_ids"].size());
  for (const Json& id : object["vocab_ids"]) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
      return BadField("vocab_ids: each must be a whole number from 0 to 2147483647");
    }
    file.vocab_ids.push_back(id.get<int32_t>());
  }
  return file;
}

}  // namespace lethe::client
