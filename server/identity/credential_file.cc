#include "server/identity/credential_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include <sys/stat.h>

#include "kernels/base/status_macros.h"
#include "kernels/base/wall_clock.h"
#include "server/diagnostics/log.h"

namespace lethe {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;
// Coarser than the clocks that file systems stamp with.
constexpr int64_t kFreshNs = 2 * kNsPerSecond;

int64_t Nanoseconds(const timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * kNsPerSecond + time.tv_nsec;
}

}  // namespace

bool CredentialFile::Stamp::operator==(const Stamp& other) const {
  return std::tie(device, inode, size, changed_ns, modified_ns) ==
         std::tie(other.device, other.inode, other.size, other.changed_ns, other.modified_ns);
}

absl::StatusOr<CredentialFile::Stamp> CredentialFile::Look() const {
  struct stat info {};
  if (::stat(path_.c_str(), &info) != 0) {
    return absl::NotFoundError(
        absl::StrCat(flag_, ": cannot read ", path_, ": ", std::strerror(errno)));
  }
  return Stamp{static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino),
               static_cast<int64_t>(info.st_size), Nanoseconds(info.st_ctim),
               Nanoseconds(info.st_mtim)};
}

absl::Status CredentialFile::Read() {
  std::ifstream file(path_, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(absl::StrCat(flag_, ": cannot read ", path_));
  }
  const audit::Sha256Digest digest = audit::Sha256Of(text);
  if (digest == text_) return parsed_;
  text_ = digest;
  absl::StatusOr<std::vector<Credential>> credentials = ParseCredentials(text);
  parsed_ = credentials.ok() ? absl::OkStatus()
                             : absl::InvalidArgumentError(absl::StrCat(
                                   flag_, ": ", path_, ": ", credentials.status().message()));
  LETHE_RETURN_IF_ERROR(parsed_);
  list_ = std::make_shared<const std::vector<Credential>>(*std::move(credentials));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CredentialFile>> CredentialFile::Open(absl::string_view flag,
                                                                     const std::string& path) {
  std::unique_ptr<CredentialFile> file(new CredentialFile(flag, path));
  MutexLock lock(&file->mutex_);
  LETHE_ASSIGN_OR_RETURN(file->stamp_, file->Look());
  file->is_fresh_ = true;
  LETHE_RETURN_IF_ERROR(file->Read());
  return file;
}

CredentialFile::List CredentialFile::Current() {
  MutexLock lock(&mutex_);
  const absl::StatusOr<Stamp> stamp = Look();
  if (stamp.ok() && *stamp == stamp_ && !is_fresh_) return list_;
  absl::Status status = stamp.status();
  const bool is_new = stamp.ok() && !(*stamp == stamp_);
  if (stamp.ok()) {
    stamp_ = *stamp;
    is_fresh_ = NowMicros() * 1000 - std::max(stamp_.changed_ns, stamp_.modified_ns) < kFreshNs;
    status = Read();
  }
  if (status.ok()) {
    if (is_new || !reported_.empty()) {
      LogInfo(absl::StrCat(flag_, ": read again, ", list_->size(), " credentials"));
    }
    reported_.clear();
  } else if (reported_ != status.message()) {
    reported_ = std::string(status.message());
    LogError(absl::StrCat(reported_, "; the credentials read before stay in force"));
  }
  return list_;
}

}  // namespace lethe
