// ExportSealer, ExportOpener: an encrypted file as a stream of chunks of which none can be changed, moved, left out, added
// or taken from another file.
//
// Equation:  file key = HMAC-SHA-256(key, "lethe-export-key-v1" || header); chunk i = AES-256-GCM(file key, associated,
//            plain), associated = "lethe-export-chunk-v1" || u64 i || u64 (1: the last, 0: another).
// Shapes:    docs/session-export.md: header of kExportHeaderBytes ("lethe session export 1\n", NUL, salt 32, zeros 8), then
//            chunks of kExportChunkBytes plain, the last one shorter or as long.
// Units:     bytes.
// Requires:  Add after Finish: never. The key is 32 bytes of randomness, not a passphrase: nothing here makes guessing slow.
// Rejects:   Add, Finish: INVALID_ARGUMENT, reason EXPORT_FORMAT: the file does not begin as one of this version;
//            DATA_LOSS, reason EXPORT_NOT_AUTHENTIC: another key, or any bit, the order or the end of the file is not
//            that of Seal; RESOURCE_EXHAUSTED, reason EXPORT_TOO_LARGE: more than bytes_max plain. Seal: what `sink` says.
// Effects:   Seal gives the whole file to `sink`, piece by piece. What was opened is given out by Finish alone, when all of
//            it is authentic, and overwritten otherwise.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_SESSION_EXPORT_EXPORT_STREAM_H_
#define LETHE_SERVER_SESSION_EXPORT_EXPORT_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/secret.h"

namespace lethe {

inline constexpr size_t kExportHeaderBytes = 64;
inline constexpr size_t kExportChunkBytes = size_t{64} << 10;
// What one export may hold, plain: 6 million tokens, 32 million numbers.
inline constexpr size_t kExportBytesMax = size_t{256} << 20;

absl::Status SealExport(const audit::Secret32& key, absl::string_view plain,
                        const std::function<absl::Status(std::string)>& sink);

class ExportOpener {
 public:
  explicit ExportOpener(const audit::Secret32& key, size_t bytes_max = kExportBytesMax)
      : key_(key), bytes_max_(bytes_max) {}
  ~ExportOpener();
  ExportOpener(const ExportOpener&) = delete;
  ExportOpener& operator=(const ExportOpener&) = delete;

  absl::Status Add(absl::string_view bytes);
  // After the last byte: the plain text, which its user overwrites.
  absl::StatusOr<std::string> Finish();

 private:
  absl::Status TakeHeader();
  absl::Status OpenChunk(absl::string_view sealed, bool is_last);

  const audit::Secret32 key_;
  const size_t bytes_max_;
  std::optional<audit::Secret32> file_key_;  // once the header is there
  uint64_t num_chunks_ = 0;
  std::string pending_;
  std::string plain_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_EXPORT_EXPORT_STREAM_H_
