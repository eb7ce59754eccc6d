#include "server/session_registry/saved_fields.h"

#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

absl::Status Malformed() { return absl::DataLossError("stored session: malformed"); }

}  // namespace

void WriteRanges(const std::vector<TokenIdRange>& ranges, ByteWriter* writer) {
  writer->U64(ranges.size());
  for (const TokenIdRange& range : ranges) {
    writer->U64(range.first);
    writer->U64(range.end);
  }
}

absl::Status ReadRanges(ByteReader* reader, std::vector<TokenIdRange>* ranges) {
  uint64_t count = 0;
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, reader->remaining() / 16, &count));
  ranges->resize(count);
  for (TokenIdRange& range : *ranges) {
    LETHE_RETURN_IF_ERROR(reader->U64(&range.first));
    LETHE_RETURN_IF_ERROR(reader->U64(&range.end));
  }
  return absl::OkStatus();
}

void WriteDigest(const audit::Sha256Digest& digest, ByteWriter* writer) {
  writer->Raw(digest.data(), digest.size());
}

absl::Status ReadDigest(ByteReader* reader, audit::Sha256Digest* digest) {
  return reader->Raw(digest->data(), digest->size());
}

void WriteOptionalDigest(const std::optional<audit::Sha256Digest>& digest, ByteWriter* writer) {
  writer->U64(digest.has_value() ? 1 : 0);
  if (digest.has_value()) WriteDigest(*digest, writer);
}

absl::Status ReadOptionalDigest(ByteReader* reader, std::optional<audit::Sha256Digest>* digest) {
  bool present = false;
  LETHE_RETURN_IF_ERROR(ReadBool(reader, &present));
  if (!present) return absl::OkStatus();
  return ReadDigest(reader, &digest->emplace());
}

absl::Status ReadBool(ByteReader* reader, bool* value) {
  uint64_t number = 0;
  LETHE_RETURN_IF_ERROR(ReadUpTo(reader, 1, &number));
  *value = number == 1;
  return absl::OkStatus();
}

absl::Status ReadUpTo(ByteReader* reader, uint64_t max, uint64_t* value) {
  LETHE_RETURN_IF_ERROR(reader->U64(value));
  return *value <= max ? absl::OkStatus() : Malformed();
}

absl::Status ReadEnd(const ByteReader& reader) {
  return reader.remaining() == 0 ? absl::OkStatus() : Malformed();
}

}  // namespace lethe
