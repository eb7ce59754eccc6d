#include "audit/log/log_files.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include <fcntl.h>
#include <unistd.h>

#include "kernels/base/sync_directory.h"
#include "kernels/base/write_all.h"

namespace lethe::audit {
namespace {

namespace fs = std::filesystem;

}  // namespace

absl::StatusOr<std::string> DirectoryFiles::Read(const std::string& path) const {
  const std::string full = absl::StrCat(root_, "/", path);
  std::error_code error;
  const fs::file_status status = fs::status(full, error);
  if (!fs::exists(status)) return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  if (!fs::is_regular_file(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is no regular file"));
  }
  if (fs::file_size(full, error) > kLogFileBytesMax || error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": over ", kLogFileBytesMax, " bytes"));
  }
  std::ifstream file(full, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad() || !file.is_open()) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot be read"));
  }
  return bytes;
}

absl::StatusOr<std::vector<std::string>> DirectoryFiles::List() const {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator it(root_, error), end; !error && it != end;
       it.increment(error)) {
    if (it->symlink_status(error).type() == fs::file_type::directory) continue;
    paths.push_back(it->path().lexically_relative(root_).string());
  }
  if (error) return absl::UnavailableError(absl::StrCat("cannot list ", root_));
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::Status DirectoryFiles::Replace(const std::string& path, absl::string_view contents) const {
  const std::string full = absl::StrCat(root_, "/", path);
  const std::string temporary = absl::StrCat(full, ".new");
  std::error_code error;
  fs::create_directories(fs::path(full).parent_path(), error);
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const bool written = fd >= 0 && WriteAll(fd, contents) && fsync(fd) == 0;
  if (fd >= 0) close(fd);
  if (!written || std::rename(temporary.c_str(), full.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  }
  return SyncParentOf(full);
}

absl::Status DirectoryFiles::Remove(const std::string& path) const {
  std::error_code error;
  fs::remove(absl::StrCat(root_, "/", path), error);
  return error ? absl::UnavailableError(absl::StrCat(path, ": cannot be removed"))
               : absl::OkStatus();
}

}  // namespace lethe::audit
