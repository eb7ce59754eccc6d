#include "server/model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "kernels/base/status_macros.h"
#include "server/model/strict_json.h"

namespace lethe {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = uint64_t{16} << 20;
constexpr size_t kMaxDims = 8;
constexpr size_t kMaxNameLength = 128;

enum class Dtype { kF32, kBf16 };

struct Entry {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  int64_t num_values = 1;
  int64_t begin = 0;
  int64_t end = 0;
};

absl::Status BadTensor(absl::string_view name, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", name, ": ", problem));
}

// Names go into messages: only the characters that the format uses are accepted.
bool IsTensorName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameLength &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_';
         });
}

// A list of `json` integers >= 0; false when it is anything else.
bool ReadSizes(const json& value, size_t max_count, std::vector<int64_t>* sizes) {
  if (!value.is_array() || value.size() > max_count) return false;
  for (const json& element : value) {
    if (!element.is_number_unsigned()) return false;
    const auto size = element.get<uint64_t>();
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    sizes->push_back(static_cast<int64_t>(size));
  }
  return true;
}

absl::StatusOr<Entry> ReadEntry(const std::string& name, const json& value) {
  Entry entry;
  entry.name = name;
  LETHE_ASSIGN_OR_RETURN(ObjectReader reader, ObjectReader::Open(value, "tensor " + name));
  LETHE_ASSIGN_OR_RETURN(const size_t dtype, reader.OneOf("dtype", {"F32", "BF16"}));
  entry.dtype = dtype == 0 ? Dtype::kF32 : Dtype::kBf16;
  LETHE_RETURN_IF_ERROR(reader.Array("shape", 0, kMaxDims).status());
  LETHE_RETURN_IF_ERROR(reader.Array("data_offsets", 2, 2).status());
  LETHE_RETURN_IF_ERROR(reader.Finish());
  std::vector<int64_t> offsets;
  if (!ReadSizes(value["shape"], kMaxDims, &entry.shape)) {
    return BadTensor(name, "shape must be at most 8 integers >= 0");
  }
  if (!ReadSizes(value["data_offsets"], 2, &offsets)) {
    return BadTensor(name, "data_offsets must be two integers >= 0");
  }
  entry.begin = offsets[0];
  entry.end = offsets[1];
  for (const int64_t size : entry.shape) {
    if (__builtin_mul_overflow(entry.num_values, size, &entry.num_values) ||
        entry.num_values > (int64_t{1} << 40)) {
      return BadTensor(name, "shape has too many elements");
    }
  }
  const int64_t num_bytes = entry.num_values * (entry.dtype == Dtype::kF32 ? 4 : 2);
  if (entry.end < entry.begin || entry.end - entry.begin != num_bytes) {
    return BadTensor(
        name, absl::StrCat("data_offsets must span ", num_bytes, " bytes, as shape and dtype say"));
  }
  return entry;
}

// Offsets must tile the data: contiguous from 0, no overlap, no gap, no rest.
absl::Status CheckTiling(std::vector<Entry>* entries, uint64_t data_bytes) {
  std::stable_sort(entries->begin(), entries->end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t expected = 0;
  for (const Entry& entry : *entries) {
    if (entry.begin < expected) return BadTensor(entry.name, "data_offsets overlap another tensor");
    if (entry.begin > expected) return BadTensor(entry.name, "data_offsets leave a gap before it");
    if (static_cast<uint64_t>(entry.end) > data_bytes) {
      return absl::DataLossError(absl::StrCat("tensor ", entry.name,
                                              ": the file ends before its data (has ", data_bytes,
                                              " bytes of data, wants ", entry.end, ")"));
    }
    expected = entry.end;
  }
  if (static_cast<uint64_t>(expected) != data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("model.safetensors: data has ", data_bytes,
                                                   " bytes, the tensors cover ", expected));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> ReadValues(const Entry& entry, const char* data) {
  Tensor tensor;
  tensor.shape = entry.shape;
  tensor.values.resize(static_cast<size_t>(entry.num_values));
  const char* source = data + entry.begin;
  if (entry.dtype == Dtype::kF32) {
    if (!tensor.values.empty()) {
      std::memcpy(tensor.values.data(), source, tensor.values.size() * sizeof(float));
    }
  } else {
    for (float& value : tensor.values) {
      uint16_t bits = 0;
      std::memcpy(&bits, source, sizeof bits);
      source += sizeof bits;
      value = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    }
  }
  for (const float value : tensor.values) {
    constexpr uint32_t kExponent = 0x7f800000u;
    if ((std::bit_cast<uint32_t>(value) & kExponent) == kExponent) {
      return BadTensor(entry.name, "every value must be finite");
    }
  }
  return tensor;
}

// The optional free-text member of the public format: strings only, ignored.
absl::Status CheckMetadata(const json& value) {
  bool fine = value.is_object();
  if (fine) {
    for (const auto& [key, text] : value.items()) fine = fine && text.is_string();
  }
  if (fine) return absl::OkStatus();
  return absl::InvalidArgumentError("__metadata__ must be an object of strings");
}

}  // namespace

absl::StatusOr<TensorMap> ParseSafetensors(absl::string_view bytes,
                                           absl::Span<const std::string> required) {
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) {
    return absl::DataLossError("model.safetensors: the file ends before its header length");
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(
        "model.safetensors: the header length must be at most 16777216");
  }
  if (header_bytes > bytes.size() - sizeof header_bytes) {
    return absl::DataLossError("model.safetensors: the file ends before its header does");
  }
  const absl::string_view text = bytes.substr(sizeof header_bytes, header_bytes);
  const absl::string_view data = bytes.substr(sizeof header_bytes + header_bytes);
  LETHE_ASSIGN_OR_RETURN(const json header, ParseStrictJson(text, "model.safetensors: header"));
  if (!header.is_object()) {
    return absl::InvalidArgumentError("model.safetensors: the header must be a JSON object");
  }
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      LETHE_RETURN_IF_ERROR(CheckMetadata(value));
      continue;
    }
    if (!IsTensorName(name)) {
      return absl::InvalidArgumentError(
          "model.safetensors: a tensor name must be 1 ... 128 letters, digits, dots or "
          "underscores");
    }
    LETHE_ASSIGN_OR_RETURN(Entry entry, ReadEntry(name, value));
    entries.push_back(std::move(entry));
  }
  for (const std::string& name : required) {
    if (!header.contains(name))
      return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is missing"));
  }
  LETHE_RETURN_IF_ERROR(CheckTiling(&entries, data.size()));
  TensorMap tensors;
  for (const Entry& entry : entries) {
    LETHE_ASSIGN_OR_RETURN(tensors[entry.name], ReadValues(entry, data.data()));
  }
  return tensors;
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  std::string bytes;
  std::vector<char> block(size_t{1} << 20);
  size_t num_read = 0;
  while ((num_read = std::fread(block.data(), 1, block.size(), file.get())) > 0) {
    bytes.append(block.data(), num_read);
  }
  if (std::ferror(file.get()) != 0) {
    return absl::DataLossError(absl::StrCat("cannot read ", path));
  }
  return bytes;
}

absl::StatusOr<TensorMap> ReadSafetensors(const std::string& path,
                                          absl::Span<const std::string> required) {
  LETHE_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(path));
  return ParseSafetensors(bytes, required);
}

std::string SafetensorsBytes(const TensorMap& tensors) {
  std::string header = "{";
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.values.data()),
                tensor.values.size() * sizeof(float));
    absl::StrAppend(&header, header.size() > 1 ? "," : "", "\"", name,
                    "\":{\"dtype\":\"F32\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                    "],\"data_offsets\":[", begin, ",", data.size(), "]}");
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t header_bytes = header.size();
  std::string bytes(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  return bytes + header + data;
}

}  // namespace lethe
