#include "tests/crash/file_calls.h"

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include <fcntl.h>
#include <linux/limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/base/check.h"
#include "tests/audit/temp_directory.h"

namespace lethe::testing {
namespace {

// What the plan does to a call.
enum class Verdict { kPass, kFail, kHalf };

struct Watched {
  std::string directory;
  DiskTrace* trace = nullptr;
  std::map<int, std::string> files;  // open descriptors: their paths in the directory
  std::map<int, int> nodes;          // of the trace
  FailurePlan plan;
  int64_t num_calls = 0;
  std::string failed_call;  // the first
};

std::atomic<bool> is_watching{false};
std::recursive_mutex watched_mutex;  // ReadFile reads under it
Watched watched;

// The path in the watched directory; false for any other.
bool IsWatched(int directory, const char* name, std::string* path) {
  std::string whole = name;
  if (directory != AT_FDCWD && name[0] != '/') {
    const auto found = watched.files.find(directory);
    if (found == watched.files.end()) return false;
    *path = found->second.empty() ? whole : found->second + "/" + whole;
    return true;
  }
  if (whole == watched.directory) {
    path->clear();
    return true;
  }
  if (!absl::StartsWith(whole, watched.directory + "/")) return false;
  *path = whole.substr(watched.directory.size() + 1);
  return true;
}

struct FileCall {
  const char* kind;
  const std::string& path;
  bool takes_space = false;
  bool is_write = false;
};

Verdict Judge(const FileCall& file_call) {
  const FailurePlan& plan = watched.plan;
  if (plan.failure == FileFailure::kDiskFull && !file_call.takes_space) return Verdict::kPass;
  if (plan.failure == FileFailure::kShortWrite && !file_call.is_write) return Verdict::kPass;
  const int64_t call = ++watched.num_calls;
  if (plan.call == 0 || call < plan.call) return Verdict::kPass;
  if (plan.failure == FileFailure::kShortWrite) {
    if (call > plan.call + 1 && !plan.for_ever) return Verdict::kPass;
  } else if (call > plan.call && !plan.for_ever) {
    return Verdict::kPass;
  }
  if (call == plan.call) watched.failed_call = std::string(file_call.kind) + " " + file_call.path;
  const bool is_half = plan.failure == FileFailure::kShortWrite && call == plan.call;
  return is_half ? Verdict::kHalf : Verdict::kFail;
}

int FailCall() {
  errno = watched.plan.failure == FileFailure::kError ? EIO : ENOSPC;
  return -1;
}

std::pair<std::string, std::string> SplitPath(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

NameChange ChangeOf(const std::string& path, int node) {
  const auto [parent, name] = SplitPath(path);
  const int directory = watched.trace->Find(parent);
  LETHE_CHECK(directory >= 0);
  return {directory, name, node};
}

int RawOpen(int directory, const char* name, int flags, mode_t mode) {
  return static_cast<int>(syscall(SYS_openat, directory, name, flags, mode));
}

int Open(int directory, const char* name, int flags, mode_t mode) {
  if (!is_watching.load()) return RawOpen(directory, name, flags, mode);
  const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
  std::string path;
  if (!IsWatched(directory, name, &path)) return RawOpen(directory, name, flags, mode);
  const bool is_there = faccessat(directory, name, F_OK, 0) == 0;
  const bool creates = (flags & O_CREAT) != 0 && !is_there;
  if (Judge({"open", path, creates}) != Verdict::kPass) return FailCall();
  const int descriptor = RawOpen(directory, name, flags, mode);
  if (descriptor < 0) return descriptor;
  watched.files[descriptor] = path;
  if (watched.trace == nullptr) return descriptor;
  int node = watched.trace->Find(path);
  if (creates) {
    node = watched.trace->NewNode(false);
    watched.trace->Rename({ChangeOf(path, node)});
  } else if ((flags & O_TRUNC) != 0) {
    watched.trace->Truncate(node, 0);
  }
  watched.nodes[descriptor] = node;
  return descriptor;
}

// `offset` < 0: where the descriptor stands.
ssize_t Write(int descriptor, const void* bytes, size_t count, off64_t offset) {
  const auto raw = [&](size_t num_bytes) -> ssize_t {
    return offset < 0 ? syscall(SYS_write, descriptor, bytes, num_bytes)
                      : syscall(SYS_pwrite64, descriptor, bytes, num_bytes, offset);
  };
  if (!is_watching.load()) return raw(count);
  const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
  if (watched.files.count(descriptor) == 0) return raw(count);
  const Verdict verdict = Judge({"write", watched.files[descriptor], true, true});
  if (verdict == Verdict::kFail) return FailCall();
  const off64_t at = offset < 0 ? lseek64(descriptor, 0, SEEK_CUR) : offset;
  const ssize_t written = raw(verdict == Verdict::kHalf ? count / 2 : count);
  if (written > 0 && watched.trace != nullptr) {
    watched.trace->Write(watched.nodes[descriptor], static_cast<uint64_t>(at),
                         {static_cast<const char*>(bytes), static_cast<size_t>(written)});
  }
  return written;
}

ssize_t Read(int descriptor, void* bytes, size_t count, off64_t offset) {
  if (is_watching.load()) {
    const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
    const auto file = watched.files.find(descriptor);
    if (file != watched.files.end() && Judge({"read", file->second}) != Verdict::kPass) {
      return FailCall();
    }
  }
  return offset < 0 ? syscall(SYS_read, descriptor, bytes, count)
                    : syscall(SYS_pread64, descriptor, bytes, count, offset);
}

int Sync(long number, int descriptor) {
  const auto raw = [&] { return static_cast<int>(syscall(number, descriptor)); };
  if (!is_watching.load()) return raw();
  const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
  if (watched.files.count(descriptor) == 0) return raw();
  if (Judge({"sync", watched.files[descriptor]}) != Verdict::kPass) {
    if (watched.trace != nullptr) watched.trace->FailSync(watched.nodes[descriptor]);
    return FailCall();
  }
  if (watched.trace != nullptr) watched.trace->Sync(watched.nodes[descriptor]);
  return 0;  // nothing that these tests ask for needs the disk itself
}

int Truncate(int descriptor, off64_t size) {
  const auto raw = [&] { return static_cast<int>(syscall(SYS_ftruncate, descriptor, size)); };
  if (!is_watching.load()) return raw();
  const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
  if (watched.files.count(descriptor) == 0) return raw();
  if (Judge({"truncate", watched.files[descriptor], true}) != Verdict::kPass) return FailCall();
  const int code = raw();
  if (code == 0 && watched.trace != nullptr) {
    watched.trace->Truncate(watched.nodes[descriptor], static_cast<uint64_t>(size));
  }
  return code;
}

int Rename(int from_directory, const char* from, int to_directory, const char* to) {
  const auto raw = [&] {
    return static_cast<int>(syscall(SYS_renameat, from_directory, from, to_directory, to));
  };
  if (!is_watching.load()) return raw();
  const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
  std::string from_path;
  std::string to_path;
  if (!IsWatched(from_directory, from, &from_path) || !IsWatched(to_directory, to, &to_path)) {
    return raw();
  }
  if (Judge({"rename", to_path, true}) != Verdict::kPass) return FailCall();
  const int code = raw();
  if (code != 0 || watched.trace == nullptr) return code;
  int node = watched.trace->Find(from_path);
  if (node < 0) {  // fopen's
    node = watched.trace->NewNode(false);
    watched.trace->Write(node, 0, audit::ReadFile(watched.directory + "/" + to_path));
  }
  watched.trace->Rename({ChangeOf(from_path, -1), ChangeOf(to_path, node)});
  return code;
}

int Unlink(int directory, const char* name, int flags) {
  const auto raw = [&] { return static_cast<int>(syscall(SYS_unlinkat, directory, name, flags)); };
  if (!is_watching.load()) return raw();
  const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
  std::string path;
  if (!IsWatched(directory, name, &path)) return raw();
  if (Judge({"unlink", path}) != Verdict::kPass) return FailCall();
  const int code = raw();
  if (code == 0 && watched.trace != nullptr) watched.trace->Rename({ChangeOf(path, -1)});
  return code;
}

int MakeDirectory(int directory, const char* name, mode_t mode) {
  const auto raw = [&] { return static_cast<int>(syscall(SYS_mkdirat, directory, name, mode)); };
  if (!is_watching.load()) return raw();
  const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
  std::string path;
  if (!IsWatched(directory, name, &path)) return raw();
  if (Judge({"mkdir", path, true}) != Verdict::kPass) return FailCall();
  const int code = raw();
  if (code == 0 && watched.trace != nullptr) {
    watched.trace->Rename({ChangeOf(path, watched.trace->NewNode(true))});
  }
  return code;
}

int Close(int descriptor) {
  if (is_watching.load()) {
    const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
    watched.files.erase(descriptor);
    watched.nodes.erase(descriptor);
  }
  return static_cast<int>(syscall(SYS_close, descriptor));
}

mode_t ModeOf(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

void FileCalls::Watch(const std::string& directory, DiskTrace* trace) {
  const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
  watched = Watched();
  watched.directory = directory;
  watched.trace = trace;
  is_watching = true;
}

void FileCalls::StopWatching() {
  const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
  is_watching = false;
  watched = Watched();
}

void FileCalls::Fail(const FailurePlan& plan) {
  const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
  watched.plan = plan;
  watched.num_calls = 0;
  watched.failed_call.clear();
}

int64_t FileCalls::num_calls() {
  const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
  return watched.num_calls;
}

bool FileCalls::failed() {
  const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
  return !watched.failed_call.empty();
}

std::string FileCalls::failed_call() {
  const std::lock_guard<std::recursive_mutex> lock(watched_mutex);
  return watched.failed_call;
}

}  // namespace lethe::testing

// The C library's functions, as its headers declare them.
extern "C" {

int open(const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = lethe::testing::ModeOf(flags, arguments);
  va_end(arguments);
  return lethe::testing::Open(AT_FDCWD, name, flags, mode);
}
int open64(const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = lethe::testing::ModeOf(flags, arguments);
  va_end(arguments);
  return lethe::testing::Open(AT_FDCWD, name, flags, mode);
}
int openat(int directory, const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = lethe::testing::ModeOf(flags, arguments);
  va_end(arguments);
  return lethe::testing::Open(directory, name, flags, mode);
}
int close(int descriptor) { return lethe::testing::Close(descriptor); }
ssize_t read(int descriptor, void* bytes, size_t count) {
  return lethe::testing::Read(descriptor, bytes, count, -1);
}
ssize_t pread(int descriptor, void* bytes, size_t count, off_t offset) {
  return lethe::testing::Read(descriptor, bytes, count, offset);
}
ssize_t pread64(int descriptor, void* bytes, size_t count, off64_t offset) {
  return lethe::testing::Read(descriptor, bytes, count, offset);
}
ssize_t write(int descriptor, const void* bytes, size_t count) {
  return lethe::testing::Write(descriptor, bytes, count, -1);
}
ssize_t pwrite(int descriptor, const void* bytes, size_t count, off_t offset) {
  return lethe::testing::Write(descriptor, bytes, count, offset);
}
ssize_t pwrite64(int descriptor, const void* bytes, size_t count, off64_t offset) {
  return lethe::testing::Write(descriptor, bytes, count, offset);
}
int fsync(int descriptor) { return lethe::testing::Sync(SYS_fsync, descriptor); }
int fdatasync(int descriptor) { return lethe::testing::Sync(SYS_fdatasync, descriptor); }
int ftruncate(int descriptor, off_t size) noexcept {
  return lethe::testing::Truncate(descriptor, size);
}
int ftruncate64(int descriptor, off64_t size) noexcept {
  return lethe::testing::Truncate(descriptor, size);
}
int rename(const char* from, const char* to) noexcept {
  return lethe::testing::Rename(AT_FDCWD, from, AT_FDCWD, to);
}
int renameat(int from_directory, const char* from, int to_directory, const char* to) noexcept {
  return lethe::testing::Rename(from_directory, from, to_directory, to);
}
int unlink(const char* name) noexcept { return lethe::testing::Unlink(AT_FDCWD, name, 0); }
int unlinkat(int directory, const char* name, int flags) noexcept {
  return lethe::testing::Unlink(directory, name, flags);
}
int mkdir(const char* name, mode_t mode) noexcept {
  return lethe::testing::MakeDirectory(AT_FDCWD, name, mode);
}

}  // extern "C"
