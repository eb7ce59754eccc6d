#include "client/doctor/directory_checks.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include <sys/stat.h>
#include <sys/statvfs.h>

namespace lethe::client {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kScarceBytes = uint64_t{1} << 30;

// File systems that write a changed block elsewhere and leave the old one for later.
constexpr std::array<absl::string_view, 5> kCopyOnWrite = {"btrfs", "zfs", "bcachefs", "nilfs2",
                                                           "f2fs"};
// Without locks or syncs that SQLite's write-ahead log relies on, or with copies on other machines.
constexpr std::array<absl::string_view, 9> kRemote = {"nfs",  "nfs4", "cifs",      "smb3",  "9p",
                                                      "ceph", "fuse", "glusterfs", "lustre"};
constexpr std::array<absl::string_view, 2> kVolatile = {"tmpfs", "ramfs"};

// The directory, or the nearest one above it that exists.
fs::path NearestExisting(const std::string& directory) {
  std::error_code error;
  fs::path path = fs::absolute(directory, error);
  while (!fs::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  return fs::canonical(path, error);
}

// Where the directory is or is going to be, without links, "." and "..": what exists of the path is resolved, the rest is taken
// by its names.
fs::path ResolvedPath(const std::string& directory) {
  std::error_code error;
  const fs::path path = fs::weakly_canonical(fs::absolute(directory, error), error);
  // A trailing slash is an empty last name.
  return path.has_filename() ? path : path.parent_path();
}

bool OpenToOthers(const fs::path& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && (info.st_mode & 077) != 0;
}

Finding CheckRights(const fs::path& directory) {
  const Finding good{Verdict::kGood, "access rights", "nobody but the owner has access", ""};
  if (OpenToOthers(directory)) {
    return {Verdict::kError, good.check, "group or others have access to the data directory",
            absl::StrCat("chmod 700 ", directory.string())};
  }
  for (const char* const secrets : {"keys", "sessions"}) {
    std::error_code error;
    for (const fs::directory_entry& file : fs::directory_iterator(directory / secrets, error)) {
      if (OpenToOthers(file.path())) {
        return {Verdict::kError, good.check,
                absl::StrCat("group or others have access to ", secrets, "/",
                             file.path().filename().string()),
                absl::StrCat("chmod 600 ", file.path().string())};
      }
    }
  }
  return good;
}

Finding JudgeFileSystem(const Mount& mount) {
  const Finding good{Verdict::kGood, "file system",
                     absl::StrCat(mount.type, " overwrites a key in its place"), ""};
  const absl::string_view kind = absl::StartsWith(mount.type, "fuse.") ? "fuse" : mount.type;
  if (absl::c_linear_search(kRemote, kind)) {
    return {Verdict::kError, good.check,
            absl::StrCat(mount.type,
                         " is no local disk: locks, syncs and erasure are another machine's"),
            "put the data directory on a local ext4 or xfs"};
  }
  if (absl::c_linear_search(kVolatile, kind)) {
    return {Verdict::kError, good.check,
            absl::StrCat(mount.type, " is memory: sessions and the audit log end with the machine"),
            "put the data directory on a local ext4 or xfs"};
  }
  if (absl::c_linear_search(kCopyOnWrite, kind)) {
    return {
        Verdict::kWarning, good.check,
        absl::StrCat(mount.type,
                     " keeps the old block of an overwritten key for a while, a snapshot for ever"),
        "put the data directory on ext4 or xfs, without snapshots under it"};
  }
  if (kind == "overlay") {
    return {Verdict::kWarning, good.check,
            "overlay is a container's own layer: it ends with the container",
            "mount a volume for the data directory"};
  }
  if (absl::StrContains(mount.options, "data=journal")) {
    return {Verdict::kWarning, good.check, "data=journal keeps copies of overwritten keys",
            "mount with data=ordered"};
  }
  return good;
}

// What is under a file system and does not show through it: a block that was overwritten may still be somewhere in the
// device, which encryption of the volume answers.
Finding CheckDevice(const Mount& mount, const SystemFiles& files) {
  const std::string device = absl::StrCat("/sys/dev/block/", mount.device_number);
  const absl::StatusOr<std::string> uuid = files.Read(absl::StrCat(device, "/dm/uuid"));
  if (uuid.ok() && absl::StartsWith(*uuid, "CRYPT-")) {
    return {Verdict::kGood, "device", "the volume is encrypted beneath the file system", ""};
  }
  absl::StatusOr<std::string> rotates = files.Read(absl::StrCat(device, "/queue/rotational"));
  // Of a partition, its disk's.
  if (!rotates.ok()) rotates = files.Read(absl::StrCat(device, "/../queue/rotational"));
  const bool is_disk = rotates.ok() && absl::StripAsciiWhitespace(*rotates) == "1";
  return {Verdict::kNote, "device",
          is_disk ? "not encrypted beneath the file system; a magnetic disk keeps no copies but in "
                    "remapped sectors"
                  : "not encrypted beneath the file system; a solid-state or virtual disk may keep "
                    "old blocks of the key file",
          "encrypt the volume (LUKS), and destroy its key when the device leaves the house"};
}

Finding CheckSpace(const fs::path& directory) {
  const Finding good{Verdict::kGood, "free space", "a gibibyte or more", ""};
  struct statvfs info {};
  if (statvfs(directory.c_str(), &info) != 0) {
    return {Verdict::kError, good.check, "the file system cannot be examined", "check the path"};
  }
  const uint64_t bytes = static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  if (bytes >= kScarceBytes && (info.f_files == 0 || info.f_favail >= 1000)) return good;
  return {
      Verdict::kWarning, good.check,
      absl::StrCat(bytes >> 20,
                   " MiB are free: a Forget writes before it removes, and a full disk refuses it"),
      "make room"};
}

}  // namespace

Findings CheckDataDirectory(const std::string& directory, const SystemFiles& files) {
  const fs::path path = NearestExisting(directory);
  std::error_code error;
  const bool exists = fs::is_directory(directory, error);
  Findings findings;
  if (path.empty()) {
    return {{Verdict::kError, "data directory", "the path cannot be resolved", "check the path"}};
  }
  findings.push_back(exists ? CheckRights(path)
                            : Finding{Verdict::kNote, "access rights",
                                      "the directory does not exist yet; the server makes it", ""});
  const absl::StatusOr<MountTable> mounts = MountTable::Read(files);
  const Mount* mount = mounts.ok() ? mounts->Of(path.string()) : nullptr;
  if (mount == nullptr) {
    findings.push_back({Verdict::kNote, "file system", "its mount is not to be seen here", ""});
  } else {
    findings.push_back(JudgeFileSystem(*mount));
    findings.push_back(CheckDevice(*mount, files));
  }
  findings.push_back(CheckSpace(path));
  return findings;
}

Findings CheckLedger(const std::string& ledger, const std::string& directory) {
  const Finding good{Verdict::kGood, "erasure ledger", "lies outside the data directory", ""};
  const fs::path data_path = ResolvedPath(directory);
  const fs::path ledger_path = ResolvedPath(ledger);
  if (data_path.empty() || ledger_path.empty()) {
    return {{Verdict::kError, good.check, "the path cannot be resolved", "check the path"}};
  }
  const std::string prefix = absl::StrCat(data_path.string(), "/");
  if (ledger_path == data_path || absl::StartsWith(ledger_path.string(), prefix)) {
    return {{Verdict::kError, good.check,
             "lies inside the data directory: a restored backup would bring its own past with it",
             "move it to a path that no backup of the data directory holds"}};
  }
  const fs::path data = NearestExisting(directory);
  const fs::path path = NearestExisting(ledger);
  struct stat data_info {};
  struct stat info {};
  if (stat(data.c_str(), &data_info) == 0 && stat(path.c_str(), &info) == 0 &&
      data_info.st_dev == info.st_dev) {
    return {{Verdict::kNote, good.check,
             "shares a file system with the data directory: a snapshot of that file system takes "
             "both back in time",
             "keep it on another volume where snapshots are restored"}};
  }
  return {good};
}

}  // namespace lethe::client
