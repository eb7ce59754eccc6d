// LogFiles, DirectoryFiles: the files of an exported log, by path below its root.
//
// Equation:  none.
// Shapes:    paths as tiles.h has them, and "checkpoint", "bodies/<leaf hash in hex>".
// Units:     bytes.
// Requires:  none.
// Rejects:   Read: NOT_FOUND; INVALID_ARGUMENT for a file over kLogFileBytesMax; UNAVAILABLE. List: UNAVAILABLE.
//            Replace: UNAVAILABLE.
// Effects:   Replace makes folders, writes beside the file, syncs and renames: a reader sees the old file or the new.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_LOG_LOG_FILES_H_
#define LETHE_AUDIT_LOG_LOG_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lethe::audit {

inline constexpr char kCheckpointFile[] = "checkpoint";
// A full bundle of the longest entries has 16.8 MB.
inline constexpr size_t kLogFileBytesMax = size_t{32} << 20;

class LogFiles {
 public:
  virtual ~LogFiles() = default;
  virtual absl::StatusOr<std::string> Read(const std::string& path) const = 0;
  // Every regular file, and everything else that is no folder, sorted.
  virtual absl::StatusOr<std::vector<std::string>> List() const = 0;
};

class DirectoryFiles : public LogFiles {
 public:
  explicit DirectoryFiles(std::string root) : root_(std::move(root)) {}

  absl::StatusOr<std::string> Read(const std::string& path) const override;
  absl::StatusOr<std::vector<std::string>> List() const override;
  absl::Status Replace(const std::string& path, absl::string_view contents) const;
  absl::Status Remove(const std::string& path) const;

 private:
  const std::string root_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_LOG_FILES_H_
