#include "client/commands/files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include <unistd.h>

namespace lethe::client {
namespace {

absl::Status FileError(const std::string& path, absl::string_view what, const std::string& reason) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what, ": ", reason));
}

absl::Status WriteInto(const std::string& path, absl::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) return FileError(path, "cannot write", std::strerror(errno));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return file ? absl::OkStatus() : FileError(path, "cannot write", "output error (disk full?)");
}

// Whether a rename may take the path's place: not that of a device, a pipe or a link to nothing.
bool IsReplaceable(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return true;
  return std::filesystem::symlink_status(path, ignored).type() ==
         std::filesystem::file_type::not_found;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return FileError(path, "cannot read", "it is a directory");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return FileError(path, "cannot read", std::strerror(errno));
  }
  const auto size = std::filesystem::file_size(path, error);
  if (!error && size > static_cast<uintmax_t>(kFileBytesMax)) {
    return FileError(path, "cannot read", absl::StrCat("more than ", kFileBytesMax, " bytes"));
  }
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) {
    return FileError(path, "cannot read", "input error");
  }
  return bytes;
}

absl::StatusOr<std::string> ReadInput(const std::string& path, std::istream& in) {
  if (path != "-") {
    return ReadFile(path);
  }
  return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

absl::Status WriteFile(const std::string& path, absl::string_view bytes) {
  if (!IsReplaceable(path)) return WriteInto(path, bytes);
  std::error_code error;
  const bool is_link = std::filesystem::is_symlink(path, error);
  const std::string target = is_link ? std::filesystem::canonical(path, error).string() : path;
  if (error && is_link) return FileError(path, "cannot write", error.message());
  const std::string temporary = absl::StrCat(target, ".", ::getpid(), ".tmp");
  const absl::Status written = WriteInto(temporary, bytes);
  error.clear();
  if (written.ok()) std::filesystem::rename(temporary, target, error);
  if (written.ok() && !error) return absl::OkStatus();
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  return written.ok() ? FileError(path, "cannot write", error.message()) : written;
}

absl::Status MakeDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error || !std::filesystem::is_directory(path)) {
    return FileError(path, "cannot make the directory",
                     error ? error.message() : "it is not a directory");
  }
  return absl::OkStatus();
}

}  // namespace lethe::client
