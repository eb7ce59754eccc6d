// LogDirectory: the files of an audit log beside its database: the lock and the published head.
//
// Equation:  none.
// Shapes:    log.lock (empty), checkpoint (the newest signed head, a C2SP note).
// Units:     none.
// Requires:  none.
// Rejects:   Lock: FAILED_PRECONDITION while another object, in this or another process, holds the
//            lock; UNAVAILABLE on errors. ReadHead: NOT_FOUND when none was published yet;
//            UNAVAILABLE.
// Effects:   Lock creates the directory (0700). PublishHead replaces the file by rename and syncs
//            file and directory before it returns: a reader sees the old head or the new one.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_AUDIT_LOG_LOG_DIRECTORY_H_
#define LETHE_AUDIT_LOG_LOG_DIRECTORY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lethe::audit {

class LogDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<LogDirectory>> Lock(const std::string& path);
  ~LogDirectory();
  LogDirectory(const LogDirectory&) = delete;
  LogDirectory& operator=(const LogDirectory&) = delete;

  std::string database_path() const { return path_ + "/log.db"; }
  absl::StatusOr<std::string> ReadHead() const;
  absl::Status PublishHead(absl::string_view checkpoint) const;

 private:
  LogDirectory(std::string path, int directory_fd, int lock_fd);
  const std::string path_;
  const int directory_fd_;  // held open, so that a rename of the directory cannot divert a write
  const int lock_fd_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_LOG_DIRECTORY_H_
