#include "client/commands/digest_file.h"

#include <algorithm>
#include <string>

#include "client/commands/nonce.h"
#include "nlohmann/json.hpp"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

using JsonValue = nlohmann::json;

absl::StatusOr<audit::Sha256Digest> HashFromBytes(absl::string_view bytes) {
  audit::Sha256Digest hash{};
  if (bytes.size() != hash.size()) {
    return absl::InvalidArgumentError("sha256: want 32 bytes");
  }
  std::copy(bytes.begin(), bytes.end(), hash.begin());
  return hash;
}

absl::StatusOr<audit::Sha256Digest> HashFromJson(const JsonValue& object) {
  if (!object.is_object() || !object.contains("sha256") || !object["sha256"].is_string()) {
    return absl::InvalidArgumentError("sha256: want 64 hex digits");
  }
  LETHE_ASSIGN_OR_RETURN(const std::string bytes, ParseHex(object["sha256"].get<std::string>()));
  return HashFromBytes(bytes);
}

absl::StatusOr<DigestFile> Checked(DigestFile file) {
  if (audit::StateDigest(file.parts) != file.digest) {
    return absl::InvalidArgumentError("the digest is not that of the parts");
  }
  return file;
}

}  // namespace

absl::StatusOr<DigestFile> ParseDigestFile(absl::string_view json) {
  JsonValue object = JsonValue::parse(json.begin(), json.end(), nullptr, false);
  if (object.is_object() && object.contains("digest")) {
    object = JsonValue(object["digest"]);
  }
  DigestFile file;
  LETHE_ASSIGN_OR_RETURN(file.digest, HashFromJson(object));
  if (!object.contains("parts") || !object["parts"].is_array() || object["parts"].empty()) {
    return absl::InvalidArgumentError("parts: want a list (write it with session digest --parts)");
  }
  for (const JsonValue& entry : object["parts"]) {
    audit::StatePart part;
    LETHE_ASSIGN_OR_RETURN(part.hash, HashFromJson(entry));
    if (!entry.contains("name") || !entry["name"].is_string()) {
      return absl::InvalidArgumentError("parts: each wants a name");
    }
    part.name = entry["name"].get<std::string>();
    file.parts.push_back(std::move(part));
  }
  return Checked(std::move(file));
}

absl::StatusOr<DigestFile> DigestFromProto(const v1::StateDigest& digest) {
  DigestFile file;
  LETHE_ASSIGN_OR_RETURN(file.digest, HashFromBytes(digest.sha256()));
  for (const v1::StateDigestPart& entry : digest.parts()) {
    LETHE_ASSIGN_OR_RETURN(const audit::Sha256Digest hash, HashFromBytes(entry.sha256()));
    file.parts.push_back({.name = entry.name(), .hash = hash});
  }
  return Checked(std::move(file));
}

}  // namespace lethe::client
