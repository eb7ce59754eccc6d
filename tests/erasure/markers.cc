#include "tests/erasure/markers.h"

#include <cmath>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace lethe::testing {
namespace {

template <typename T>
std::string BytesOf(absl::Span<const T> numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
}

// What of the base64 of a text does not depend on the bytes around it, for each of its three places.
std::string Base64Middle(const std::string& text, size_t place) {
  const std::string padded = std::string(place, 'x') + text;
  const std::string encoded = absl::Base64Escape(padded);
  return encoded.substr(4, 16);
}

void PutAt(size_t at, const std::string& bytes, std::string* pattern, std::string* mask) {
  pattern->replace(at, bytes.size(), bytes);
  mask->replace(at, bytes.size(), std::string(bytes.size(), '\1'));
}

// Eight inputs of `stride` bytes each that begin with the token_id and the vocabulary id.
void AddInputs(const std::string& name, const std::string& text, uint64_t first_token_id,
               size_t stride, size_t id_bytes, ByteScanner* scanner) {
  for (size_t first = 0; first + 8 <= text.size(); first += 4) {
    std::string pattern(stride * 7 + 8 + id_bytes, '\0');
    std::string mask = pattern;
    for (size_t k = 0; k < 8; ++k) {
      const uint64_t token_id = first_token_id + first + k;
      const uint64_t vocab_id = static_cast<uint8_t>(text[first + k]);
      const auto bytes = [](uint64_t value, size_t count) {
        return std::string(reinterpret_cast<const char*>(&value), count);
      };
      PutAt(k * stride, bytes(token_id, 8), &pattern, &mask);
      PutAt(k * stride + 8, bytes(vocab_id, id_bytes), &pattern, &mask);
    }
    scanner->Add(name, pattern, mask);
  }
}

}  // namespace

std::string Markers::Name(const char* kind) { return absl::StrCat(kind, " ", ++num_planted_); }

void Markers::AddWindows(const std::string& name, const std::string& bytes, size_t size,
                         size_t step) {
  for (size_t at = 0; at + size <= bytes.size(); at += step) {
    scanner_.Add(name, bytes.substr(at, size));
  }
}

void Markers::AddIds(const std::string& name, const std::string& text, size_t id_bytes) {
  std::string ids;
  for (const char c : text) {
    ids.push_back(c);
    ids.append(id_bytes - 1, '\0');
  }
  AddWindows(name, ids, 8 * id_bytes, 4 * id_bytes);
}

std::string Markers::Text() {
  // Never as what stays goes on: a first token that is the next one's equal has its features, which stay.
  std::string text(1, static_cast<char>(128 + random_() % 128));
  while (text.size() < kTextBytes) text.push_back(static_cast<char>(1 + random_() % 255));
  const std::string name = Name("text");
  AddWindows(name, text, 8, 1);
  AddWindows(name + " in hex", absl::BytesToHexString(text), 16, 8);
  for (size_t place = 0; place < 3; ++place) {
    scanner_.Add(name + " in base64", Base64Middle(text, place));
  }
  AddIds(name + " as i32", text, 4);
  AddIds(name + " as i64", text, 8);
  return text;
}

std::string Markers::Label() {
  constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  const size_t length = random_() % 2 == 0 ? 13 : 24;
  std::string label;
  while (label.size() < length) label.push_back(kLetters[random_() % 36]);
  const std::string name = Name("label");
  AddWindows(name, label, 8, 1);
  AddWindows(name + " in hex", absl::BytesToHexString(label), 16, 8);
  scanner_.Add(name + " in base64", Base64Middle(label, 0).substr(0, 12));
  return label;
}

std::vector<double> Markers::Numbers(int count, bool as_floats) {
  std::normal_distribution<double> normal;
  std::vector<double> numbers(static_cast<size_t>(count));
  for (double& number : numbers) {
    number = normal(random_);
    if (as_floats) number = static_cast<float>(number);
  }
  const std::string name = Name(as_floats ? "floats" : "doubles");
  // A float's 24 bits are too few to be told from other numbers: two of them then.
  if (as_floats) {
    AddWindows(name, BytesOf<double>(numbers), 16, 8);
    const std::vector<float> narrow(numbers.begin(), numbers.end());
    AddFloats(name + " as f32", narrow);
  } else {
    AddDoubles(name, numbers);
    for (const double number : numbers) {
      uint64_t bits = 0;
      std::memcpy(&bits, &number, sizeof bits);
      scanner_.Add(name + " in hex", absl::StrCat(absl::Hex(bits, absl::kZeroPad16)));
    }
  }
  return numbers;
}

void Markers::AddTokenIds(const std::string& text, uint64_t first_token_id) {
  AddInputs("a text in the history", text, first_token_id, 24, 4, &scanner_);
  AddInputs("a text in a stored row", text, first_token_id, 40, 8, &scanner_);
}

void Markers::AddFloats(const std::string& name, absl::Span<const float> numbers) {
  // Numbers that a computation may give for other reasons mark nothing.
  const auto telling = [](float number) {
    return std::isfinite(number) && std::fabs(number) > 1e-30f && number != std::round(number);
  };
  for (size_t i = 0; i + 2 <= numbers.size(); ++i) {
    if (!telling(numbers[i]) || !telling(numbers[i + 1]) || numbers[i] == numbers[i + 1]) continue;
    scanner_.Add(name, BytesOf<float>(numbers.subspan(i, 2)));
  }
}

void Markers::AddDoubles(const std::string& name, absl::Span<const double> numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!std::isfinite(numbers[i]) || numbers[i] == std::round(numbers[i])) continue;
    scanner_.Add(name, BytesOf<double>(numbers.subspan(i, 1)));
  }
}

}  // namespace lethe::testing
