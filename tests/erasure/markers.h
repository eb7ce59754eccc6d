// Markers: random content to be forgotten, and every form in which the server could hold it.
//
// A text of 16 random bytes is looked for as it is, in hex and base64, as vocabulary ids of 32 and 64 bits, and with its
// token_ids as the history and the stored rows hold it. Any eight bytes of a text or a label in a row are a find, so what
// is overwritten in part is found too. Numbers are looked for by their bits, in either byte order of hex.
// Threads: compatible.
#ifndef LETHE_TESTS_ERASURE_MARKERS_H_
#define LETHE_TESTS_ERASURE_MARKERS_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"

#include "tests/testing/byte_scanner.h"

namespace lethe::testing {

inline constexpr size_t kTextBytes = 16;

class Markers {
 public:
  explicit Markers(uint64_t seed) : random_(seed) {}

  // A byte is a vocabulary id of the tests' models, 0 apart.
  std::string Text();
  // Printable; short ones live inside a std::string, on the stack or in a message.
  std::string Label();
  // Normal numbers: doubles, or such as a float holds.
  std::vector<double> Numbers(int count, bool as_floats);

  // The text's tokens got these ids.
  void AddTokenIds(const std::string& text, uint64_t first_token_id);
  // Numbers computed from a marker: every pair of neighbours, or every double.
  void AddFloats(const std::string& name, absl::Span<const float> numbers);
  void AddDoubles(const std::string& name, absl::Span<const double> numbers);

  int64_t num_planted() const { return num_planted_; }
  const ByteScanner& scanner() const { return scanner_; }
  uint64_t Random() { return random_(); }

 private:
  std::string Name(const char* kind);
  void AddWindows(const std::string& name, const std::string& bytes, size_t size, size_t step);
  void AddIds(const std::string& name, const std::string& text, size_t id_bytes);

  std::mt19937_64 random_;
  int64_t num_planted_ = 0;
  ByteScanner scanner_;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_ERASURE_MARKERS_H_
