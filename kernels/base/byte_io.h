// ByteWriter, ByteReader: the canonical little-endian encoding of session state.
//
// Every state digest and serialised state is written through these, so that the bytes are a function of
// the values alone: integers as u64 little-endian, floating point as IEEE-754 bits little-endian,
// arrays as a u64 count followed by the elements, strings as a u64 length followed by the bytes.
//
// Requires: a little-endian host (static_assert).
// Rejects:  ByteReader: DATA_LOSS when the bytes end early or a count exceeds what is left.
// Threads:  compatible.
#ifndef LETHE_KERNELS_BASE_BYTE_IO_H_
#define LETHE_KERNELS_BASE_BYTE_IO_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lethe {

static_assert(std::endian::native == std::endian::little);

class ByteWriter {
 public:
  void U64(uint64_t value) { Raw(&value, sizeof value); }
  void I64(int64_t value) { Raw(&value, sizeof value); }
  void F32(float value) { Raw(&value, sizeof value); }
  void F64(double value) { Raw(&value, sizeof value); }
  void String(absl::string_view value) {
    U64(value.size());
    Raw(value.data(), value.size());
  }
  template <typename T>
  void Array(absl::Span<const T> values) {
    static_assert(std::is_arithmetic_v<T>);
    U64(values.size());
    Raw(values.data(), values.size() * sizeof(T));
  }
  void Raw(const void* data, size_t num_bytes) {
    bytes_.append(static_cast<const char*>(data), num_bytes);
  }
  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(absl::string_view bytes) : bytes_(bytes) {}
  absl::Status U64(uint64_t* value) { return Raw(value, sizeof *value); }
  absl::Status I64(int64_t* value) { return Raw(value, sizeof *value); }
  absl::Status F32(float* value) { return Raw(value, sizeof *value); }
  absl::Status F64(double* value) { return Raw(value, sizeof *value); }
  absl::Status String(std::string* value) {
    uint64_t num_bytes = 0;
    if (absl::Status status = U64(&num_bytes); !status.ok()) return status;
    if (num_bytes > bytes_.size()) return absl::DataLossError("string runs past the end");
    value->assign(bytes_.data(), num_bytes);
    bytes_.remove_prefix(num_bytes);
    return absl::OkStatus();
  }
  template <typename T>
  absl::Status Array(std::vector<T>* values) {
    static_assert(std::is_arithmetic_v<T>);
    uint64_t count = 0;
    if (absl::Status status = U64(&count); !status.ok()) return status;
    if (count > bytes_.size() / sizeof(T)) return absl::DataLossError("array runs past the end");
    values->resize(count);
    return Raw(values->data(), count * sizeof(T));
  }
  absl::Status Raw(void* data, size_t num_bytes) {
    if (num_bytes > bytes_.size()) return absl::DataLossError("bytes end early");
    if (num_bytes > 0) std::memcpy(data, bytes_.data(), num_bytes);
    bytes_.remove_prefix(num_bytes);
    return absl::OkStatus();
  }
  size_t remaining() const { return bytes_.size(); }

 private:
  absl::string_view bytes_;
};

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_BYTE_IO_H_
