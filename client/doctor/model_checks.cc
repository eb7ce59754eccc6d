#include "client/doctor/model_checks.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace lethe::client {
namespace {

namespace fs = std::filesystem;

constexpr char kFormat[] = "lethe-model/1";
constexpr char kRemedy[] = "copy the model directory again (docs/model-format.md)";

Finding Broken(const std::string& found) { return {Verdict::kError, "model", found, kRemedy}; }

// Where the last tensor ends by the header of a safetensors file; -1 when there is no such header.
int64_t EndOfTensors(const fs::path& path, uint64_t file_bytes) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 8> prefix{};
  if (!file.read(prefix.data(), prefix.size())) return -1;
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < prefix.size(); ++i) {
    header_bytes |= uint64_t{static_cast<uint8_t>(prefix[i])} << (8 * i);
  }
  if (header_bytes > file_bytes - prefix.size()) return -1;
  std::string text(header_bytes, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size()))) return -1;
  const nlohmann::json header = nlohmann::json::parse(text, nullptr, false);
  if (!header.is_object()) return -1;
  uint64_t end = 0;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const auto offsets = tensor.is_object() ? tensor.find("data_offsets") : tensor.end();
    if (offsets == tensor.end() || !offsets->is_array() || offsets->size() != 2 ||
        !(*offsets)[1].is_number_unsigned()) {
      return -1;
    }
    end = std::max(end, (*offsets)[1].get<uint64_t>());
  }
  return static_cast<int64_t>(prefix.size() + header_bytes + end);
}

}  // namespace

Findings CheckModel(const std::string& directory) {
  const fs::path path(directory);
  std::ifstream config_file(path / "config.json", std::ios::binary);
  if (!config_file) return {Broken("config.json cannot be read")};
  const std::string text(std::istreambuf_iterator<char>(config_file), {});
  const nlohmann::json config = nlohmann::json::parse(text, nullptr, false);
  if (!config.is_object()) return {Broken("config.json is not a JSON object")};
  const auto format = config.find("format");
  if (format == config.end() || *format != kFormat) {
    return {Broken(absl::StrCat("config.json is not of format ", kFormat))};
  }
  std::error_code error;
  const fs::path weights = path / "model.safetensors";
  const uintmax_t file_bytes = fs::file_size(weights, error);
  if (error) return {Broken("model.safetensors cannot be read")};
  const int64_t end = EndOfTensors(weights, file_bytes);
  if (end < 0) return {Broken("model.safetensors has no readable header")};
  if (static_cast<uintmax_t>(end) != file_bytes) {
    return {Broken(
        absl::StrCat("model.safetensors has ", file_bytes, " bytes, its header says ", end))};
  }
  return {{Verdict::kGood, "model", absl::StrCat(file_bytes >> 20, " MiB of weights, whole"), ""}};
}

}  // namespace lethe::client
