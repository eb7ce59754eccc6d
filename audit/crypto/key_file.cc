#include "audit/crypto/key_file.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/crypto/secret.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/sync_directory.h"
#include "kernels/base/write_all.h"

namespace lethe::audit {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status WriteAndSync(int fd, absl::string_view contents) {
  if (!WriteAll(fd, contents)) return absl::UnavailableError("key file: write failed");
  if (fsync(fd) != 0) return absl::UnavailableError("key file: sync failed");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadKeyFile(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno == ENOENT)
      return absl::NotFoundError(absl::StrCat("key file ", path, ": no such file"));
    return absl::UnavailableError(absl::StrCat("key file ", path, ": cannot be opened"));
  }
  struct stat info;
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("key file ", path, ": is no regular file"));
  }
  if ((info.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("key file ", path, ": group or others have access, want mode 0600"));
  }
  // Sized once: growing would leave copies of the key in freed memory.
  std::string contents(kKeyFileBytesMax + 1, '\0');
  size_t num_bytes = 0;
  while (num_bytes < contents.size()) {
    const ssize_t got = read(file.get(), contents.data() + num_bytes, contents.size() - num_bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      SecureWipe(&contents);
      return absl::UnavailableError(absl::StrCat("key file ", path, ": read failed"));
    }
    if (got == 0) break;
    num_bytes += static_cast<size_t>(got);
  }
  if (num_bytes > kKeyFileBytesMax) {
    SecureWipe(&contents);
    return absl::InvalidArgumentError(absl::StrCat("key file ", path, ": over 65536 bytes"));
  }
  contents.resize(num_bytes);
  return contents;
}

absl::Status WriteKeyFile(const std::string& path, absl::string_view contents) {
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0) {
    if (errno == EEXIST) {
      return absl::AlreadyExistsError(absl::StrCat("key file ", path, ": exists already"));
    }
    return absl::UnavailableError(absl::StrCat("key file ", path, ": cannot be created"));
  }
  absl::Status status = WriteAndSync(file.get(), contents);
  if (status.ok()) status = SyncParentOf(path);
  if (!status.ok()) unlink(path.c_str());
  return status;
}

absl::Status DestroyKeyFile(const std::string& path) {
  {
    const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    struct stat info;
    if (file.get() < 0 || fstat(file.get(), &info) != 0) {
      return absl::UnavailableError(absl::StrCat("key file ", path, ": cannot be opened"));
    }
    LETHE_RETURN_IF_ERROR(
        WriteAndSync(file.get(), std::string(static_cast<size_t>(info.st_size), '\0')));
  }
  if (unlink(path.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("key file ", path, ": cannot be removed"));
  }
  return SyncParentOf(path);
}

}  // namespace lethe::audit
