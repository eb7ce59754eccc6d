#include "client/inputs_file.h"

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

absl::StatusOr<v1::MemoryOptions> OptionsFromJson(const Json& object) {
  v1::MemoryOptions options;
  for (const auto& [key, value] : object.items()) {
    if (key == "ovq_slots" && value.is_number_integer()) {
      options.set_ovq_slots(value.get<int32_t>());
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

}  // namespace

std::string WriteInputsFile(const InputsFile& file) {
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
