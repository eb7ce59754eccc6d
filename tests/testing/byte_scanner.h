// ByteScanner: finds any of many byte patterns in files and in the memory of a process.
//
// A pattern is at least eight bytes, some of which may be anything (a mask); its first eight are exact and looked for
// at every offset. A bitmap says of nearly every offset that nothing begins there, at about 300 MB/s.
// Threads: safe once all patterns are added.
#ifndef LETHE_TESTS_TESTING_BYTE_SCANNER_H_
#define LETHE_TESTS_TESTING_BYTE_SCANNER_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/string_view.h"
#include <sys/types.h>

namespace lethe::testing {

struct Hit {
  std::string name;   // of the pattern
  std::string where;  // file, or mapping of the process, and offset
};

class ByteScanner {
 public:
  ByteScanner();
  // `mask`: empty, or a byte for each of the pattern's, 0 where any byte fits.
  void Add(const std::string& name, absl::string_view bytes, absl::string_view mask = {});
  size_t num_patterns() const { return patterns_.size(); }

  // At most kMaxHits each; `where` begins every hit's.
  static constexpr size_t kMaxHits = 200;
  void ScanBytes(absl::string_view bytes, const std::string& where, std::vector<Hit>* hits) const;
  // Every regular file below; a file that goes away meanwhile counts as empty.
  void ScanDirectory(const std::string& path, std::vector<Hit>* hits) const;
  // Everything that may be read in /proc/PID/mem.
  void ScanProcess(pid_t process, std::vector<Hit>* hits) const;
  // Bytes seen by the scans so far.
  int64_t num_bytes() const { return num_bytes_; }

 private:
  struct Pattern {
    std::string name;
    std::string bytes;
    std::string mask;
  };
  bool Fits(const Pattern& pattern, absl::string_view at) const;

  std::vector<Pattern> patterns_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> by_start_;
  std::vector<uint64_t> bitmap_;
  size_t longest_ = 8;
  mutable int64_t num_bytes_ = 0;
};

// The names of the first hits and where they are, for a failure message.
std::string Describe(const std::vector<Hit>& hits);

}  // namespace lethe::testing

#endif  // LETHE_TESTS_TESTING_BYTE_SCANNER_H_
