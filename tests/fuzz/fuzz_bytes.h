// FuzzBytes: reads an input of a fuzz target as numbers and pieces; zeros behind its end.
//
// Threads: compatible.
#ifndef LETHE_TESTS_FUZZ_FUZZ_BYTES_H_
#define LETHE_TESTS_FUZZ_FUZZ_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace lethe::fuzz {

class FuzzBytes {
 public:
  explicit FuzzBytes(absl::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  uint8_t Next() {
    if (bytes_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return byte;
  }
  int64_t Below(int64_t end) { return Next() % end; }
  // Any double.
  double Raw() {
    uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | Next();
    double x = 0.0;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  // The next `size` bytes, or as many as there are.
  std::string Piece(size_t size) {
    const std::string piece(bytes_.substr(0, size));
    bytes_.remove_prefix(piece.size());
    return piece;
  }
  std::string Rest() { return Piece(bytes_.size()); }

 private:
  absl::string_view bytes_;
};

}  // namespace lethe::fuzz

#endif  // LETHE_TESTS_FUZZ_FUZZ_BYTES_H_
