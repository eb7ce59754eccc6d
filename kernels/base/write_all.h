// WriteAll, WriteAllAt: every byte into a descriptor, whatever write(2) takes at a time.
//
// Equation:  none.
// Shapes:    none.
// Units:     offset in bytes.
// Requires:  none.
// Rejects:   false on an input/output error, with errno as write(2) left it.
// Effects:   none beyond that; nothing is synced.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_KERNELS_BASE_WRITE_ALL_H_
#define LETHE_KERNELS_BASE_WRITE_ALL_H_

#include <cerrno>
#include <cstdint>

#include "absl/strings/string_view.h"
#include <unistd.h>

namespace lethe {

inline bool WriteAll(int descriptor, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

inline bool WriteAllAt(int descriptor, uint64_t offset, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return true;
}

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_WRITE_ALL_H_
