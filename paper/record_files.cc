#include "paper/record_files.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/status_macros.h"

namespace lethe::paper {
namespace {

namespace fs = std::filesystem;

using Files = std::map<std::string, std::string>;

absl::Status Unusable(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("--data ", path, ": ", why));
}

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Standard output of `program -dc -- path`.
absl::StatusOr<std::string> Unpacked(const std::string& program, const std::string& path) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return absl::InternalError("cannot make a pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::array<std::string, 4> words = {program, "-dc", "--", path};
  std::array<char*, 5> argv = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                               nullptr};
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, program.c_str(), &actions, nullptr, argv.data(), ::environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string bytes;
  if (error == 0) {
    const std::unique_ptr<FILE, int (*)(FILE*)> in(::fdopen(ends[0], "rb"), std::fclose);
    std::array<char, 1 << 16> block{};
    size_t size = 0;
    while ((size = std::fread(block.data(), 1, block.size(), in.get())) > 0) {
      bytes.append(block.data(), size);
    }
  } else {
    ::close(ends[0]);
  }
  int exit_state = 0;
  if (error != 0 || ::waitpid(child, &exit_state, 0) != child || exit_state != 0) {
    return Unusable(path, absl::StrCat("cannot be unpacked with ", program));
  }
  return bytes;
}

// An octal field of a tar header.
int64_t Octal(absl::string_view field) {
  int64_t value = 0;
  for (const char c : field) {
    if (c == ' ' && value == 0) continue;  // padding
    if (c < '0' || c > '7') break;
    value = 8 * value + (c - '0');
  }
  return value;
}

void Keep(const std::string& name, std::string content, Files* files) {
  const fs::path path(name);
  if (path.extension() == ".txt") files->emplace(path.stem().string(), std::move(content));
}

// Plain files of a POSIX tar with names of up to 100 bytes, which is what the data has.
absl::Status ReadTar(const std::string& path, absl::string_view tar, Files* files) {
  constexpr size_t kBlock = 512;
  while (tar.size() >= kBlock && tar[0] != '\0') {
    const absl::string_view header = tar.substr(0, kBlock);
    if (header.substr(257, 5) != "ustar") return Unusable(path, "is no tar archive");
    const absl::string_view name = header.substr(0, header.substr(0, 100).find('\0'));
    const auto size = static_cast<size_t>(Octal(header.substr(124, 12)));
    tar.remove_prefix(kBlock);
    if (size > tar.size()) return Unusable(path, "ends early");
    if (header[156] == '0' || header[156] == '\0') {
      Keep(std::string(name.substr(0, 100)), std::string(tar.substr(0, size)), files);
    }
    tar.remove_prefix(std::min(tar.size(), (size + kBlock - 1) / kBlock * kBlock));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Files> ReadRecordFiles(const std::string& path) {
  Files files;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (auto it = fs::recursive_directory_iterator(path, error);
         !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
      if (it->is_regular_file(error)) Keep(it->path().string(), ReadFile(it->path()), &files);
    }
    return files;
  }
  if (!fs::is_regular_file(path, error)) {
    return absl::NotFoundError(absl::StrCat("--data ", path, ": no such file or directory"));
  }
  std::string tar;
  if (absl::EndsWith(path, ".xz") || absl::EndsWith(path, ".gz")) {
    LETHE_ASSIGN_OR_RETURN(tar, Unpacked(absl::EndsWith(path, ".xz") ? "xz" : "gzip", path));
  } else {
    tar = ReadFile(path);
  }
  LETHE_RETURN_IF_ERROR(ReadTar(path, tar, &files));
  return files;
}

}  // namespace lethe::paper
