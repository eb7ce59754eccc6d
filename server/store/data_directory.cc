#include "server/store/data_directory.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/certificate/keys.h"
#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

absl::Status CreatePrivate(const fs::path& directory) {
  std::error_code error;
  if (fs::is_directory(directory, error)) return absl::OkStatus();
  fs::create_directories(directory, error);
  if (!error) fs::permissions(directory, fs::perms::owner_all, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot create the data directory ", directory.string(), ": ", error.message()));
}

absl::StatusOr<int> Lock(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot open ", path.string(), ": ", std::strerror(errno)));
  }
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  close(descriptor);
  return absl::FailedPreconditionError(
      absl::StrCat("another lethe-server uses the data directory ", path.parent_path().string()));
}

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Replaces the file in one step, so that a reader never sees half of it.
absl::Status WriteTrustFile(const fs::path& path, const std::string& text) {
  if (ReadAll(path) == text) return absl::OkStatus();
  const fs::path temporary = path.string() + ".new";
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << text;
    file.flush();
    if (!file) return absl::UnavailableError(absl::StrCat("cannot write ", temporary.string()));
  }
  std::error_code error;
  fs::rename(temporary, path, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path.string(), ": ", error.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataDirectory>> DataDirectory::Open(
    const std::string& path, const std::string& origin,
    std::function<void(const absl::Status&)> on_store_failure) {
  const fs::path root = fs::absolute(path);
  LETHE_RETURN_IF_ERROR(CreatePrivate(root));
  std::unique_ptr<DataDirectory> data(new DataDirectory());
  LETHE_ASSIGN_OR_RETURN(data->lock_descriptor_, Lock(root / "lock"));
  LETHE_ASSIGN_OR_RETURN(const audit::ServerKeys keys,
                         audit::ServerKeys::LoadOrCreate((root / "keys").string()));
  LETHE_ASSIGN_OR_RETURN(data->log_,
                         audit::AuditLog::Open({(root / "log").string(), origin, keys.log_key}));
  data->recorder_ = std::make_unique<audit::Recorder>(keys, data->log_.get());
  const fs::path sessions = root / "sessions";
  LETHE_RETURN_IF_ERROR(CreatePrivate(sessions));
  LETHE_ASSIGN_OR_RETURN(data->store_,
                         SessionStore::Open({sessions.string(), std::move(on_store_failure)}));
  const auto is_recorded = [&](const audit::Sha256Digest& leaf_hash) -> absl::StatusOr<bool> {
    const absl::StatusOr<uint64_t> found = data->log_->FindLeaf(leaf_hash);
    if (absl::IsNotFound(found.status())) return false;
    if (!found.ok()) return found.status();
    return true;
  };
  LETHE_ASSIGN_OR_RETURN(data->store_report_, data->store_->Recover(is_recorded));
  data->record_spki_ = keys.record_key->public_key().SpkiDer();
  data->trust_path_ = (root / "trust.txt").string();
  LETHE_ASSIGN_OR_RETURN(const audit::TrustStore trust, keys.Trust(origin));
  LETHE_RETURN_IF_ERROR(WriteTrustFile(data->trust_path_, audit::WriteTrust(trust)));
  return data;
}

DataDirectory::~DataDirectory() {
  if (lock_descriptor_ >= 0) close(lock_descriptor_);
}

}  // namespace lethe
