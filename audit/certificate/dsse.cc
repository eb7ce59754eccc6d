#include "audit/certificate/dsse.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "audit/certificate/json.h"
#include "audit/certificate/json_fields.h"
#include "audit/crypto/encoding.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

std::string ReadBase64(absl::string_view key, JsonReader* reader) {
  absl::StatusOr<std::string> bytes =
      Base64Decode(reader->String(key), Base64Alphabet::kAcceptUrlSafe);
  if (!bytes.ok()) {
    reader->Fail(key, bytes.status().message());
    return "";
  }
  return *std::move(bytes);
}

}  // namespace

std::string PreAuthEncoding(absl::string_view payload_type, absl::string_view payload) {
  return absl::StrCat("DSSEv1 ", payload_type.size(), " ", payload_type, " ", payload.size(), " ",
                      payload);
}

DsseEnvelope SignEnvelope(absl::string_view payload_type, absl::string_view payload,
                          const Ed25519PrivateKey& key) {
  DsseEnvelope envelope;
  envelope.payload_type = std::string(payload_type);
  envelope.payload = std::string(payload);
  envelope.key_id = HexEncode(key.public_key().KeyId());
  envelope.signature = key.Sign(PreAuthEncoding(payload_type, payload));
  return envelope;
}

std::string WriteEnvelope(const DsseEnvelope& envelope) {
  const Json signature =
      Json::MakeObject({{"keyid", Json::String(envelope.key_id)},
                        {"sig", Json::String(Base64Encode(envelope.signature))}});
  return WriteJson(Json::MakeObject({{"payload", Json::String(Base64Encode(envelope.payload))},
                                     {"payloadType", Json::String(envelope.payload_type)},
                                     {"signatures", Json::MakeArray({signature})}}));
}

absl::StatusOr<DsseEnvelope> ParseEnvelope(absl::string_view json) {
  if (json.size() > kEnvelopeBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("envelope: over ", kEnvelopeBytesMax, " bytes"));
  }
  LETHE_ASSIGN_OR_RETURN(const Json value, ParseJson(json, JsonSyntax::kFree));
  absl::Status status;
  JsonReader reader(value, "", &status);
  DsseEnvelope envelope;
  envelope.payload_type = reader.String("payloadType");
  envelope.payload = ReadBase64("payload", &reader);
  std::vector<JsonReader> signatures = reader.Objects("signatures");
  if (signatures.size() != 1) reader.Fail("signatures", "want exactly one");
  reader.Finish();
  LETHE_RETURN_IF_ERROR(status);
  envelope.key_id = signatures[0].String("keyid");
  const std::string signature = ReadBase64("sig", &signatures[0]);
  if (signature.size() != envelope.signature.size()) signatures[0].Fail("sig", "want 64 bytes");
  signatures[0].Finish();
  LETHE_RETURN_IF_ERROR(status);
  std::copy(signature.begin(), signature.end(), envelope.signature.begin());
  return envelope;
}

}  // namespace lethe::audit
