#include "tests/testing/byte_scanner.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include <fcntl.h>
#include <unistd.h>

#include "kernels/base/check.h"

namespace lethe::testing {
namespace {

constexpr size_t kStartBytes = 8;
constexpr int kBitmapBits = 24;  // 2 MiB: stays in the processor's cache
constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr size_t kPageBytes = 4096;

uint64_t StartAt(const char* bytes) {
  uint64_t start = 0;
  std::memcpy(&start, bytes, sizeof start);
  return start;
}

size_t BitOf(uint64_t start) {
  return static_cast<size_t>((start * 0x9e3779b97f4a7c15) >> (64 - kBitmapBits));
}

bool IsZero(const char* bytes, size_t count) {
  return bytes[0] == 0 && std::memcmp(bytes, bytes + 1, count - 1) == 0;
}

struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string name;
};

std::vector<Mapping> ReadableMappings(pid_t process) {
  std::ifstream maps(absl::StrCat("/proc/", process, "/maps"));
  std::vector<Mapping> mappings;
  for (std::string line; std::getline(maps, line);) {
    Mapping mapping;
    char mode[5] = "";
    int name_at = 0;
    LETHE_CHECK(std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %*s %n",
                            &mapping.begin, &mapping.end, mode, &name_at) == 3);
    mapping.name = line.substr(std::min(line.size(), static_cast<size_t>(name_at)));
    // The kernel's own pages cannot be read this way and hold nothing of the process.
    if (mode[0] == 'r' && mapping.name != "[vvar]" && mapping.name != "[vsyscall]") {
      mappings.push_back(std::move(mapping));
    }
  }
  return mappings;
}

}  // namespace

ByteScanner::ByteScanner() : bitmap_(size_t{1} << (kBitmapBits - 6)) {}

void ByteScanner::Add(const std::string& name, absl::string_view bytes, absl::string_view mask) {
  LETHE_CHECK(bytes.size() >= kStartBytes && (mask.empty() || mask.size() == bytes.size()));
  const uint64_t start = StartAt(bytes.data());
  const size_t bit = BitOf(start);
  bitmap_[bit / 64] |= uint64_t{1} << (bit % 64);
  by_start_[start].push_back(static_cast<uint32_t>(patterns_.size()));
  patterns_.push_back({name, std::string(bytes), std::string(mask)});
  longest_ = std::max(longest_, bytes.size());
}

bool ByteScanner::Fits(const Pattern& pattern, absl::string_view at) const {
  if (at.size() < pattern.bytes.size()) return false;
  if (pattern.mask.empty()) {
    return std::memcmp(at.data(), pattern.bytes.data(), pattern.bytes.size()) == 0;
  }
  for (size_t i = 0; i < pattern.bytes.size(); ++i) {
    if (pattern.mask[i] != 0 && at[i] != pattern.bytes[i]) return false;
  }
  return true;
}

void ByteScanner::ScanBytes(absl::string_view bytes, const std::string& where,
                            std::vector<Hit>* hits) const {
  num_bytes_ += static_cast<int64_t>(bytes.size());
  if (bytes.size() < kStartBytes) return;
  const size_t last = bytes.size() - kStartBytes;
  for (size_t at = 0; at <= last; ++at) {
    if (at % kPageBytes == 0 && at + kPageBytes + kStartBytes <= bytes.size() &&
        IsZero(bytes.data() + at, kPageBytes + kStartBytes)) {
      at += kPageBytes - 1;  // no pattern begins with eight zeros
      continue;
    }
    const uint64_t start = StartAt(bytes.data() + at);
    const size_t bit = BitOf(start);
    if ((bitmap_[bit / 64] >> (bit % 64) & 1) == 0) continue;
    const auto found = by_start_.find(start);
    if (found == by_start_.end()) continue;
    for (const uint32_t k : found->second) {
      if (hits->size() < kMaxHits && Fits(patterns_[k], bytes.substr(at))) {
        hits->push_back({patterns_[k].name, absl::StrCat(where, " +", at)});
      }
    }
  }
}

void ByteScanner::ScanDirectory(const std::string& path, std::vector<Hit>* hits) const {
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path, error)) {
    if (!entry.is_regular_file(error)) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    ScanBytes(bytes.str(), entry.path().string(), hits);
  }
}

void ByteScanner::ScanProcess(pid_t process, std::vector<Hit>* hits) const {
  const int memory = open(absl::StrCat("/proc/", process, "/mem").c_str(), O_RDONLY | O_CLOEXEC);
  LETHE_CHECK(memory >= 0);
  // Blocks overlap, so that no pattern is cut; what is found twice is told twice.
  std::string block(kBlockBytes + longest_, '\0');
  for (const Mapping& mapping : ReadableMappings(process)) {
    for (uint64_t at = mapping.begin; at < mapping.end; at += kBlockBytes) {
      const size_t want = std::min<uint64_t>(block.size(), mapping.end - at);
      const ssize_t got = pread(memory, block.data(), want, static_cast<off_t>(at));
      if (got <= 0) continue;  // given back meanwhile
      ScanBytes(absl::string_view(block.data(), static_cast<size_t>(got)),
                absl::StrCat(mapping.name.empty() ? "memory" : mapping.name, " ", absl::Hex(at)),
                hits);
    }
  }
  close(memory);
}

std::string Describe(const std::vector<Hit>& hits) {
  std::string text = absl::StrCat(hits.size(), " hits\n");
  for (size_t i = 0; i < std::min<size_t>(hits.size(), 25); ++i) {
    absl::StrAppend(&text, "  ", hits[i].name, " in ", hits[i].where, "\n");
  }
  return text;
}

}  // namespace lethe::testing
