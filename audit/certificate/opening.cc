#include "audit/certificate/opening.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/certificate/id_ranges.h"
#include "audit/certificate/json.h"
#include "audit/certificate/json_fields.h"
#include "audit/crypto/encoding.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

// Room for every id in a range of its own.
constexpr size_t kOpeningBytesMax = size_t{1} << 30;

}  // namespace

std::string WriteOpening(const Opening& opening) {
  return WriteJson(Json::MakeObject({{"_type", Json::String(kOpeningType)},
                                     {"certSalt", Json::String(HexEncode(opening.salt.bytes()))},
                                     {"derivedKept", TokenIdRangesJson(opening.derived_kept)},
                                     {"forgotten", TokenIdRangesJson(opening.forgotten)},
                                     {"leaf", JsonDigest(opening.leaf_hash)},
                                     {"retained", TokenIdRangesJson(opening.retained)},
                                     {"stateDigest", JsonDigest(opening.state_digest)}}));
}

absl::StatusOr<Opening> ParseOpening(absl::string_view bytes) {
  if (bytes.size() > kOpeningBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("opening: over ", kOpeningBytesMax, " bytes"));
  }
  LETHE_ASSIGN_OR_RETURN(const Json json, ParseJson(bytes, JsonSyntax::kCanonical));
  absl::Status status;
  JsonReader reader(json, "", &status);
  reader.Constant("_type", kOpeningType);
  Opening opening{Secret32::FromBytes(reader.Digest("certSalt")), {}, {}, {}, {}, {}};
  opening.derived_kept = ReadTokenIds("derivedKept", kOpeningIdsMax, &reader);
  opening.forgotten = ReadTokenIds("forgotten", kOpeningIdsMax, &reader);
  opening.leaf_hash = reader.Digest("leaf");
  opening.retained = ReadTokenIds("retained", kOpeningIdsMax, &reader);
  opening.state_digest = reader.Digest("stateDigest");
  reader.Finish();
  LETHE_RETURN_IF_ERROR(status);
  return opening;
}

}  // namespace lethe::audit
