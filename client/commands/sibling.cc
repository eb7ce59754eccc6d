#include "client/commands/sibling.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include <unistd.h>

namespace lethe::client {

absl::StatusOr<std::string> SiblingProgram(const std::string& name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (self.parent_path() / name).string();
  if (error || ::access(path.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("no program ", name, " beside this one (", path, ")"));
  }
  return path;
}

}  // namespace lethe::client
