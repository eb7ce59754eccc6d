// SyncDirectory, SyncParentOf: make the names in a directory durable: of files and directories that were created, renamed or
// removed there. A synced file whose name is not durable may be gone after a loss of power.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   UNAVAILABLE on an input/output error.
// Effects:   none beyond that; SyncParentOf leaves alone a parent that this user may not read.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_KERNELS_BASE_SYNC_DIRECTORY_H_
#define LETHE_KERNELS_BASE_SYNC_DIRECTORY_H_

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include <fcntl.h>
#include <unistd.h>

#include "kernels/base/fault.h"

namespace lethe {

inline absl::Status SyncDirectory(const std::string& path) {
  if (FaultActive(Fault::kDirectoryNotSynced)) return absl::OkStatus();
  const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = directory >= 0 && fsync(directory) == 0;
  const int cause = errno;
  if (directory >= 0) close(directory);
  if (synced) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("sync of the directory ", path, " failed: ", std::strerror(cause)));
}

inline absl::Status SyncParentOf(const std::string& path) {
  const std::filesystem::path path_of_parent = std::filesystem::path(path).parent_path();
  const std::string parent = path_of_parent.empty() ? "." : path_of_parent.string();
  // Who may not read a directory cannot sync it; such a one is not ours.
  if (access(parent.c_str(), R_OK) != 0 && errno == EACCES) return absl::OkStatus();
  return SyncDirectory(parent);
}

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_SYNC_DIRECTORY_H_
