// DurableDirectory: a directory with one owner, whose small files are replaced as a whole and synced.
//
// Equation:  none.
// Shapes:    none.
// Units:     bytes.
// Requires:  none.
// Rejects:   Lock: FAILED_PRECONDITION while another object, in this or another process, holds the lock; UNAVAILABLE. Read:
//            NOT_FOUND; UNAVAILABLE; DATA_LOSS for a file over bytes_max. Replace: UNAVAILABLE. Messages begin with
//            the name given to Lock.
// Effects:   Lock creates the directory (0700) and the lock file. Replace writes "<file>.new", syncs it, renames it and
//            syncs the directory before it returns: a reader sees the old file or the new one.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_AUDIT_LOG_DURABLE_DIRECTORY_H_
#define LETHE_AUDIT_LOG_DURABLE_DIRECTORY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include <sys/types.h>

namespace lethe::audit {

class DurableDirectory {
 public:
  // `name` stands in messages; static storage.
  static absl::StatusOr<std::unique_ptr<DurableDirectory>> Lock(const std::string& path,
                                                                const char* lock_file,
                                                                const char* name);
  ~DurableDirectory();
  DurableDirectory(const DurableDirectory&) = delete;
  DurableDirectory& operator=(const DurableDirectory&) = delete;

  const std::string& path() const { return path_; }
  absl::StatusOr<std::string> Read(const char* file, size_t bytes_max) const;
  absl::Status Replace(const char* file, absl::string_view contents, mode_t mode) const;

 private:
  DurableDirectory(std::string path, const char* name, int directory_fd, int lock_fd);
  const std::string path_;
  const char* const name_;
  const int directory_fd_;  // held open, so that a rename of the directory cannot divert a write
  const int lock_fd_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_DURABLE_DIRECTORY_H_
