#include "audit/log/durable_directory.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/crash_point.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/sync_directory.h"
#include "kernels/base/write_all.h"

namespace lethe::audit {

DurableDirectory::DurableDirectory(std::string path, const char* name, int directory_fd,
                                   int lock_fd)
    : path_(std::move(path)), name_(name), directory_fd_(directory_fd), lock_fd_(lock_fd) {}

DurableDirectory::~DurableDirectory() {
  close(lock_fd_);
  close(directory_fd_);
}

absl::StatusOr<std::unique_ptr<DurableDirectory>> DurableDirectory::Lock(const std::string& path,
                                                                         const char* lock_file,
                                                                         const char* name) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(absl::StrCat(name, ": cannot create directory ", path));
  }
  LETHE_RETURN_IF_ERROR(SyncParentOf(path));
  const int directory_fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_fd < 0) {
    return absl::UnavailableError(absl::StrCat(name, ": cannot open directory ", path));
  }
  const int lock_fd = openat(directory_fd, lock_file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd < 0) {
    close(directory_fd);
    return absl::UnavailableError(absl::StrCat(name, ": cannot open the lock file in ", path));
  }
  if (flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
    close(lock_fd);
    close(directory_fd);
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": ", path, " is in use by another process"));
  }
  return std::unique_ptr<DurableDirectory>(new DurableDirectory(path, name, directory_fd, lock_fd));
}

absl::StatusOr<std::string> DurableDirectory::Read(const char* file, size_t bytes_max) const {
  const int fd = openat(directory_fd_, file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat(name_, ": no file ", file));
    return absl::UnavailableError(absl::StrCat(name_, ": ", file, " cannot be opened"));
  }
  std::string contents;
  char buffer[4096];
  while (contents.size() <= bytes_max) {
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      close(fd);
      return absl::UnavailableError(absl::StrCat(name_, ": ", file, " cannot be read"));
    }
    if (got == 0) break;
    contents.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  if (contents.size() > bytes_max) {
    return absl::DataLossError(absl::StrCat(name_, ": ", file, " is over ", bytes_max, " bytes"));
  }
  return contents;
}

absl::Status DurableDirectory::Replace(const char* file, absl::string_view contents,
                                       mode_t mode) const {
  const std::string temporary = absl::StrCat(file, ".new");
  const int fd =
      openat(directory_fd_, temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return absl::UnavailableError(absl::StrCat(name_, ": ", file, " cannot be created"));
  const bool written =
      WriteAll(fd, contents) && (FaultActive(Fault::kHeadNotSynced) || fsync(fd) == 0);
  close(fd);
  if (!written) return absl::UnavailableError(absl::StrCat(name_, ": ", file, " was not written"));
  CrashPoint("a file is written beside the one that it replaces");
  if (renameat(directory_fd_, temporary.c_str(), directory_fd_, file) != 0 ||
      fsync(directory_fd_) != 0) {
    return absl::UnavailableError(absl::StrCat(name_, ": ", file, " could not be replaced"));
  }
  return absl::OkStatus();
}

}  // namespace lethe::audit
