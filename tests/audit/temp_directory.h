// TempDirectory: a fresh directory that goes away with the object; kMemory: where syncs cost
// nothing.
// Threads: safe.
#ifndef LETHE_TESTS_AUDIT_TEMP_DIRECTORY_H_
#define LETHE_TESTS_AUDIT_TEMP_DIRECTORY_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "kernels/base/check.h"

namespace lethe::audit {

class TempDirectory {
 public:
  enum class Where { kDisk, kMemory };
  explicit TempDirectory(Where where = Where::kDisk)
      : path_((Parent(where) / ("lethe-" + std::string(6, 'X'))).string()) {
    LETHE_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TempDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  static std::filesystem::path Parent(Where where) {
    const bool has_memory = std::filesystem::is_directory("/dev/shm");
    return where == Where::kMemory && has_memory ? "/dev/shm"
                                                 : std::filesystem::temp_directory_path();
  }
  std::string path_;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

inline void WriteFile(const std::string& path, const std::string& contents) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << contents;
  LETHE_CHECK(file.good());
}

}  // namespace lethe::audit

#endif  // LETHE_TESTS_AUDIT_TEMP_DIRECTORY_H_
