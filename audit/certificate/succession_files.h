// KeysPath, ReplaceKey, NextLog, …: the files of a change of keys (log_succession.h).
//
// Equation:  none.
// Shapes:    log.next: origin, "rotate" or "restore", and of a restore vkey, size and root of the log before, a line each.
// Units:     none.
// Requires:  none.
// Rejects:   UNAVAILABLE; ReadNext: NOT_FOUND, DATA_LOSS for any bytes but WriteNext's.
// Effects:   What is written or renamed is synced. NewKey makes a key under the name with ".new" behind it, whole or not at all;
//            ReplaceKey puts it in its place, and overwrites and removes the key that was there.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_AUDIT_CERTIFICATE_SUCCESSION_FILES_H_
#define LETHE_AUDIT_CERTIFICATE_SUCCESSION_FILES_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/certificate/keyset.h"
#include "audit/certificate/log_succession.h"

namespace lethe::audit {

inline constexpr char kPublicFile[] = "public.txt";
inline constexpr char kNextFile[] = "log.next";

std::string KeysPath(const LogHome& home, absl::string_view file);
std::string LogPath(const LogHome& home);
std::string LeftLogPath(const LogHome& home, int number);
// How many logs were left; they are numbered from 1.
int NumLeftLogs(const LogHome& home);
bool Exists(const std::string& path);

absl::StatusOr<std::string> ReadKeysText(const LogHome& home, const char* file);
absl::Status WriteKeysText(const LogHome& home, const char* file, absl::string_view text);
absl::Status RemoveKeysText(const LogHome& home, const char* file);
absl::Status RenameSynced(const std::string& from, const std::string& to);
absl::Status NewKey(const LogHome& home, const std::string& name);
absl::Status ReplaceKey(const LogHome& home, const std::string& name);

// How the log goes on, so that every step can be taken again.
struct NextLog {
  std::string origin;
  bool is_restore = false;
  std::optional<LogLink> previous;  // known before the log is left only in a restore
};
absl::Status WriteNext(const LogHome& home, const NextLog& next);
absl::StatusOr<NextLog> ReadNext(const LogHome& home);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_SUCCESSION_FILES_H_
