#include "audit/log/log_directory.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/log/note.h"

namespace lethe::audit {
namespace {

constexpr char kLockFile[] = "log.lock";
constexpr char kHeadFile[] = "checkpoint";
constexpr char kNewHeadFile[] = "checkpoint.new";

absl::Status WriteAndSync(int fd, absl::string_view contents) {
  while (!contents.empty()) {
    const ssize_t written = write(fd, contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return absl::UnavailableError("audit log: the head could not be written");
    contents.remove_prefix(static_cast<size_t>(written));
  }
  if (fsync(fd) != 0) return absl::UnavailableError("audit log: the head could not be synced");
  return absl::OkStatus();
}

}  // namespace

LogDirectory::LogDirectory(std::string path, int directory_fd, int lock_fd)
    : path_(std::move(path)), directory_fd_(directory_fd), lock_fd_(lock_fd) {}

LogDirectory::~LogDirectory() {
  close(lock_fd_);
  close(directory_fd_);
}

absl::StatusOr<std::unique_ptr<LogDirectory>> LogDirectory::Lock(const std::string& path) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(absl::StrCat("audit log: cannot create directory ", path));
  }
  const int directory_fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_fd < 0) {
    return absl::UnavailableError(absl::StrCat("audit log: cannot open directory ", path));
  }
  const int lock_fd = openat(directory_fd, kLockFile, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd < 0) {
    close(directory_fd);
    return absl::UnavailableError(absl::StrCat("audit log: cannot open the lock file in ", path));
  }
  if (flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
    close(lock_fd);
    close(directory_fd);
    return absl::FailedPreconditionError(
        absl::StrCat("audit log: ", path, " is in use by another process"));
  }
  return std::unique_ptr<LogDirectory>(new LogDirectory(path, directory_fd, lock_fd));
}

absl::StatusOr<std::string> LogDirectory::ReadHead() const {
  const int fd = openat(directory_fd_, kHeadFile, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) return absl::NotFoundError("audit log: no head was published");
    return absl::UnavailableError("audit log: the published head cannot be opened");
  }
  std::string contents(kNoteBytesMax + 1, '\0');
  size_t num_bytes = 0;
  while (num_bytes < contents.size()) {
    const ssize_t got = read(fd, contents.data() + num_bytes, contents.size() - num_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      close(fd);
      return absl::UnavailableError("audit log: the published head cannot be read");
    }
    if (got == 0) break;
    num_bytes += static_cast<size_t>(got);
  }
  close(fd);
  contents.resize(num_bytes);
  return contents;
}

absl::Status LogDirectory::PublishHead(absl::string_view checkpoint) const {
  const int fd =
      openat(directory_fd_, kNewHeadFile, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return absl::UnavailableError("audit log: the head cannot be created");
  absl::Status status = WriteAndSync(fd, checkpoint);
  close(fd);
  if (!status.ok()) return status;
  if (renameat(directory_fd_, kNewHeadFile, directory_fd_, kHeadFile) != 0 ||
      fsync(directory_fd_) != 0) {
    return absl::UnavailableError("audit log: the head could not be published");
  }
  return absl::OkStatus();
}

}  // namespace lethe::audit
