// WriteRanges … ReadBool: the fields that stored sessions and stored answers are written with.
//
// Equation:  none.
// Shapes:    as kernels/base/byte_io.h; a digest is its 32 bytes, an optional a u64 0 or 1 and the value.
// Units:     none.
// Requires:  none.
// Rejects:   Read…: DATA_LOSS when the bytes are not what Write… writes.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_SESSION_REGISTRY_SAVED_FIELDS_H_
#define LETHE_SERVER_SESSION_REGISTRY_SAVED_FIELDS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"

#include "audit/crypto/sha256.h"
#include "kernels/base/byte_io.h"
#include "server/session/forget.h"

namespace lethe {

void WriteRanges(const std::vector<TokenIdRange>& ranges, ByteWriter* writer);
absl::Status ReadRanges(ByteReader* reader, std::vector<TokenIdRange>* ranges);

void WriteDigest(const audit::Sha256Digest& digest, ByteWriter* writer);
absl::Status ReadDigest(ByteReader* reader, audit::Sha256Digest* digest);

void WriteOptionalDigest(const std::optional<audit::Sha256Digest>& digest, ByteWriter* writer);
absl::Status ReadOptionalDigest(ByteReader* reader, std::optional<audit::Sha256Digest>* digest);

absl::Status ReadBool(ByteReader* reader, bool* value);
// A u64 of at most `max`.
absl::Status ReadUpTo(ByteReader* reader, uint64_t max, uint64_t* value);
// OK when nothing is left.
absl::Status ReadEnd(const ByteReader& reader);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_SAVED_FIELDS_H_
