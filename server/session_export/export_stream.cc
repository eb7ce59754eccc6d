#include "server/session_export/export_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/crypto/aead.h"
#include "audit/crypto/sha256.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"

namespace lethe {
namespace {

// With its NUL: 24 bytes.
constexpr char kMagic[] = "lethe session export 1\n";
constexpr size_t kSaltBytes = 32;
constexpr size_t kSealedChunkBytes = kExportChunkBytes + audit::kAeadOverheadBytes;
static_assert(sizeof kMagic + kSaltBytes + 8 == kExportHeaderBytes);

std::string NewHeader() {
  std::string header(kMagic, sizeof kMagic);
  const audit::Secret32 salt = audit::Secret32::Random();
  header.append(salt.bytes().begin(), salt.bytes().end());
  header.resize(kExportHeaderBytes);
  return header;
}

audit::Secret32 FileKey(const audit::Secret32& key, absl::string_view header) {
  audit::Sha256Digest bytes =
      audit::HmacSha256(key.bytes(), absl::StrCat("lethe-export-key-v1", header));
  audit::Secret32 file_key = audit::Secret32::FromBytes(bytes);
  audit::SecureWipe(bytes.data(), bytes.size());
  return file_key;
}

std::string AssociatedOf(uint64_t chunk, bool is_last) {
  ByteWriter writer;
  writer.String("lethe-export-chunk-v1");
  writer.U64(chunk);
  writer.U64(is_last ? 1 : 0);
  return writer.Take();
}

absl::Status NotAuthentic() {
  return WithErrorInfo(
      absl::DataLossError("data: the file is not whole and unchanged under this key"),
      {"EXPORT_NOT_AUTHENTIC", {{"field", "data"}}});
}

absl::Status NotAnExport() {
  return WithErrorInfo(absl::InvalidArgumentError("data: want a session export of version 1"),
                       {"EXPORT_FORMAT", {{"field", "data"}}});
}

}  // namespace

absl::Status SealExport(const audit::Secret32& key, absl::string_view plain,
                        const std::function<absl::Status(std::string)>& sink) {
  const std::string header = NewHeader();
  const audit::Secret32 file_key = FileKey(key, header);
  LETHE_RETURN_IF_ERROR(sink(header));
  uint64_t chunk = 0;
  do {
    const absl::string_view piece = plain.substr(0, kExportChunkBytes);
    plain.remove_prefix(piece.size());
    LETHE_RETURN_IF_ERROR(
        sink(audit::SealAes256Gcm(file_key, AssociatedOf(chunk++, plain.empty()), piece)));
  } while (!plain.empty());
  return absl::OkStatus();
}

ExportOpener::~ExportOpener() { audit::SecureWipe(&plain_); }

absl::Status ExportOpener::TakeHeader() {
  const absl::string_view header = absl::string_view(pending_).substr(0, kExportHeaderBytes);
  const absl::string_view zeros = header.substr(sizeof kMagic + kSaltBytes);
  if (header.substr(0, sizeof kMagic) != absl::string_view(kMagic, sizeof kMagic) ||
      std::any_of(zeros.begin(), zeros.end(), [](char byte) { return byte != 0; })) {
    return NotAnExport();
  }
  file_key_ = FileKey(key_, header);
  pending_.erase(0, kExportHeaderBytes);
  return absl::OkStatus();
}

absl::Status ExportOpener::OpenChunk(absl::string_view sealed, bool is_last) {
  absl::StatusOr<std::string> piece =
      audit::OpenAes256Gcm(*file_key_, AssociatedOf(num_chunks_, is_last), sealed);
  if (!piece.ok()) return NotAuthentic();
  ++num_chunks_;
  const bool fits = plain_.size() + piece->size() <= bytes_max_;
  if (fits) {
    // Growing by itself the string would leave copies behind.
    if (plain_.capacity() < plain_.size() + piece->size()) {
      std::string grown;
      grown.reserve(std::max(2 * plain_.capacity(), 2 * kExportChunkBytes));
      grown = plain_;
      audit::SecureWipe(&plain_);
      plain_ = std::move(grown);
    }
    plain_.append(*piece);
  }
  audit::SecureWipe(&*piece);
  if (fits) return absl::OkStatus();
  return WithErrorInfo(
      absl::ResourceExhaustedError(
          absl::StrCat("data: an import takes at most ", bytes_max_, " bytes of a session")),
      {"EXPORT_TOO_LARGE", {{"field", "data"}, {"bytes_max", absl::StrCat(bytes_max_)}}});
}

absl::Status ExportOpener::Add(absl::string_view bytes) {
  pending_.append(bytes.data(), bytes.size());
  if (!file_key_.has_value()) {
    if (pending_.size() < kExportHeaderBytes) return absl::OkStatus();
    LETHE_RETURN_IF_ERROR(TakeHeader());
  }
  size_t done = 0;
  // A chunk is known not to be the last once there is a byte behind it.
  absl::Status status;
  while (status.ok() && pending_.size() - done > kSealedChunkBytes) {
    status = OpenChunk(absl::string_view(pending_).substr(done, kSealedChunkBytes), false);
    done += kSealedChunkBytes;
  }
  pending_.erase(0, done);
  return status;
}

absl::StatusOr<std::string> ExportOpener::Finish() {
  if (!file_key_.has_value()) return NotAnExport();
  LETHE_RETURN_IF_ERROR(OpenChunk(pending_, true));
  return std::move(plain_);
}

}  // namespace lethe
