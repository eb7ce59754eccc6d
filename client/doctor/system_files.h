// SystemFiles, MountTable: what /proc and /sys say, read from a root of the caller's choice.
//
// Equation:  none.
// Shapes:    /proc/self/mountinfo of proc(5).
// Units:     none.
// Requires:  none.
// Rejects:   Read: NOT_FOUND for whatever cannot be read.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_DOCTOR_SYSTEM_FILES_H_
#define LETHE_CLIENT_DOCTOR_SYSTEM_FILES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lethe::client {

class SystemFiles {
 public:
  // "" is the machine itself; a test gives a directory that has proc/ and sys/ in it.
  explicit SystemFiles(std::string root) : root_(std::move(root)) {}

  absl::StatusOr<std::string> Read(absl::string_view path) const;
  // The value behind `key`, as in "VmSwap:  12 kB", without surrounding spaces.
  absl::StatusOr<std::string> Field(absl::string_view path, absl::string_view key) const;

 private:
  const std::string root_;
};

struct Mount {
  std::string device_number;  // "254:0"
  std::string mount_point;
  std::string type;     // "ext4"
  std::string source;   // "/dev/vda"
  std::string options;  // of the mount and of the file system, separated by commas
};

class MountTable {
 public:
  static absl::StatusOr<MountTable> Read(const SystemFiles& files);

  // The mount that an absolute path without links lies on; null when the table has none.
  const Mount* Of(absl::string_view path) const;

 private:
  std::vector<Mount> mounts_;  // later ones hide earlier ones
};

}  // namespace lethe::client

#endif  // LETHE_CLIENT_DOCTOR_SYSTEM_FILES_H_
