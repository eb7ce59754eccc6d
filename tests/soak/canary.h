// Canary: a piece of text that names the session which it was told to, so that it is known wherever it comes up.
//
//   Canary(7, 2).text()      "cnry00000007-2k"
//   ForeignCanary(bytes, 7)  what else such text says in `bytes`, or nothing
//
// Requires:  owners below 2^32.
// Threads:   values.
#ifndef LETHE_TESTS_SOAK_CANARY_H_
#define LETHE_TESTS_SOAK_CANARY_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace lethe::soak {

inline constexpr char kCanaryPrefix[] = "cnry";
inline constexpr size_t kOwnerDigits = 8;

class Canary {
 public:
  Canary(int64_t owner, int64_t number)
      : text_(absl::StrFormat("%s%08x-%dk", kCanaryPrefix, owner, number)) {}
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The first canary in `bytes` whose owner is not `owner` (-1: the beginning of any canary); empty: there is none. Of a piece that
// is cut nobody can say whose it is.
inline std::string ForeignCanary(absl::string_view bytes, int64_t owner) {
  const std::string own = owner < 0 ? "" : absl::StrFormat("%08x", owner);
  const absl::string_view prefix = kCanaryPrefix;
  for (size_t at = bytes.find(prefix); at != absl::string_view::npos;
       at = bytes.find(prefix, at + 1)) {
    absl::string_view digits = bytes.substr(at + prefix.size(), kOwnerDigits);
    const size_t cut = digits.find_first_not_of("0123456789abcdef");
    const bool is_whole = digits.size() == kOwnerDigits && cut == absl::string_view::npos;
    if (owner >= 0 && (!is_whole || digits == own)) continue;
    return std::string(bytes.substr(at, prefix.size() + kOwnerDigits));
  }
  return "";
}

}  // namespace lethe::soak

#endif  // LETHE_TESTS_SOAK_CANARY_H_
