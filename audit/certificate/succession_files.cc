#include "audit/certificate/succession_files.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "audit/crypto/ed25519.h"
#include "audit/crypto/encoding.h"
#include "audit/crypto/key_file.h"
#include "audit/log/log_files.h"
#include "kernels/base/crash_point.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/sync_directory.h"

namespace lethe::audit {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::string KeysPath(const LogHome& home, absl::string_view file) {
  return absl::StrCat(home.directory, "/keys/", file);
}
std::string LogPath(const LogHome& home) { return home.directory + "/log"; }
std::string LeftLogPath(const LogHome& home, int number) {
  return absl::StrCat(home.directory, "/log-", number);
}
bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// How many logs were left; they are numbered from 1.
int NumLeftLogs(const LogHome& home) {
  int number = 0;
  while (Exists(LeftLogPath(home, number + 1))) ++number;
  return number;
}

absl::StatusOr<std::string> ReadKeysText(const LogHome& home, const char* file) {
  return DirectoryFiles(home.directory + "/keys").Read(file);
}
absl::Status WriteKeysText(const LogHome& home, const char* file, absl::string_view text) {
  return DirectoryFiles(home.directory + "/keys").Replace(file, text);
}

absl::Status RenameSynced(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot rename ", from));
  return SyncParentOf(to);
}

// `name`.new takes the place of `name`, whose bytes are overwritten.
absl::Status ReplaceKey(const LogHome& home, const std::string& name) {
  const std::string path = KeysPath(home, name);
  const std::string replaced = path + ".old";
  if (Exists(path + ".new")) {
    if (Exists(path)) LETHE_RETURN_IF_ERROR(RenameSynced(path, replaced));
    CrashPoint("a key is out of its place");
    LETHE_RETURN_IF_ERROR(RenameSynced(path + ".new", path));
  }
  return Exists(replaced) ? DestroyKeyFile(replaced) : absl::OkStatus();
}

absl::Status NewKey(const LogHome& home, const std::string& name) {
  // A kill may leave half a file, but never under the name that counts.
  const std::string making = KeysPath(home, name + ".making");
  if (Exists(making)) LETHE_RETURN_IF_ERROR(DestroyKeyFile(making));
  LETHE_RETURN_IF_ERROR(Ed25519PrivateKey::Generate().SavePem(making));
  return RenameSynced(making, KeysPath(home, name + ".new"));
}

absl::Status WriteNext(const LogHome& home, const NextLog& next) {
  std::string text = absl::StrCat(next.origin, "\n", next.is_restore ? "restore" : "rotate", "\n");
  if (next.previous.has_value()) {
    absl::StrAppend(&text, WriteVerifierKey(next.previous->vkey), "\n", next.previous->tree_size,
                    "\n", HexEncode(next.previous->root_hash), "\n");
  }
  return WriteKeysText(home, kNextFile, text);
}

absl::StatusOr<NextLog> ReadNext(const LogHome& home) {
  LETHE_ASSIGN_OR_RETURN(const std::string text, ReadKeysText(home, kNextFile));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  uint64_t tree_size = 0;
  const bool is_restore = lines.size() == 6 && lines[1] == "restore";
  if (!(is_restore ? absl::SimpleAtoi(lines[3], &tree_size)
                   : lines.size() == 3 && lines[1] == "rotate")) {
    return absl::DataLossError("keys/log.next is damaged");
  }
  NextLog next{lines[0], is_restore, std::nullopt};
  if (!is_restore) return next;
  LETHE_ASSIGN_OR_RETURN(VerifierKey vkey, ParseVerifierKey(lines[2]));
  next.previous = LogLink{std::move(vkey), tree_size};
  LETHE_ASSIGN_OR_RETURN(next.previous->root_hash, HexDecodeDigest(lines[4]));
  return next;
}

absl::Status RemoveKeysText(const LogHome& home, const char* file) {
  return DirectoryFiles(home.directory + "/keys").Remove(file);
}

}  // namespace lethe::audit
