#include "client/doctor/system_files.h"

#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

// proc(5): space, tab, newline and backslash in names stand as three octal digits.
std::string Unescape(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 3 < text.size() && text[i + 1] >= '0' &&
                         text[i + 1] <= '3' && text[i + 2] >= '0' && text[i + 2] <= '7' &&
                         text[i + 3] >= '0' && text[i + 3] <= '7';
    if (!escaped) {
      plain += text[i];
      continue;
    }
    plain +=
        static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
    i += 3;
  }
  return plain;
}

bool LiesUnder(absl::string_view path, absl::string_view directory) {
  if (directory == "/") return absl::StartsWith(path, "/");
  return path == directory || (absl::StartsWith(path, directory) && path[directory.size()] == '/');
}

}  // namespace

absl::StatusOr<std::string> SystemFiles::Read(absl::string_view path) const {
  std::ifstream file(absl::StrCat(root_, path), std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, " cannot be read"));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::StatusOr<std::string> SystemFiles::Field(absl::string_view path,
                                               absl::string_view key) const {
  LETHE_ASSIGN_OR_RETURN(const std::string text, Read(path));
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, key)) continue;
    return std::string(absl::StripAsciiWhitespace(line));
  }
  return absl::NotFoundError(absl::StrCat(path, " has no line ", key));
}

absl::StatusOr<MountTable> MountTable::Read(const SystemFiles& files) {
  LETHE_ASSIGN_OR_RETURN(const std::string text, files.Read("/proc/self/mountinfo"));
  MountTable table;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    // Six fields, any number of optional ones, a dash, three fields.
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    size_t dash = 6;
    while (dash < fields.size() && fields[dash] != "-") ++dash;
    if (dash + 3 >= fields.size()) continue;
    Mount mount;
    mount.device_number = std::string(fields[2]);
    mount.mount_point = Unescape(fields[4]);
    mount.type = std::string(fields[dash + 1]);
    mount.source = Unescape(fields[dash + 2]);
    mount.options = absl::StrCat(fields[5], ",", fields[dash + 3]);
    table.mounts_.push_back(std::move(mount));
  }
  return table;
}

const Mount* MountTable::Of(absl::string_view path) const {
  const Mount* found = nullptr;
  for (const Mount& mount : mounts_) {
    if (!LiesUnder(path, mount.mount_point)) continue;
    if (found == nullptr || mount.mount_point.size() >= found->mount_point.size()) found = &mount;
  }
  return found;
}

}  // namespace lethe::client
