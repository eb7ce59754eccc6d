// FileCalls: the file calls of this process, of our code and of SQLite alike, on their way to the operating system: written
// down (DiskTrace), counted, and the n-th made to fail.
//
// The linker puts file_calls.cc's open, pwrite, fsync, … before the C library's, so the code that runs is the code that
// ships, SQLite's own file layer with its directory syncs and its retries included: a layer in SQLite's place would leave
// that out, and would not see the key file, the published head and the signing keys.
//
// Equation:  none.
// Shapes:    none.
// Units:     calls from 1.
// Requires:  no sanitizer (it puts calls of its own there). Files are opened by this process, after Watch.
// Rejects:   none.
// Effects:   only files under the watched directory are seen. Mapped memory and fopen are not: a file that fopen wrote
//            is taken up when it is renamed. A sync that fails has not synced and never will have (Linux
//            forgets what it could not write): DiskTrace::FailSync.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_TESTS_CRASH_FILE_CALLS_H_
#define LETHE_TESTS_CRASH_FILE_CALLS_H_

#include <cstdint>
#include <string>

#include "tests/crash/disk_trace.h"

namespace lethe::testing {

enum class FileFailure {
  kError,       // EIO, of every call
  kDiskFull,    // ENOSPC, of the calls that take space
  kShortWrite,  // a write that writes half, the next one finds the disk full
};

struct FailurePlan {
  FileFailure failure = FileFailure::kError;
  int64_t call = 0;       // which one, of those that can fail so; 0: none, they are counted
  bool for_ever = false;  // and all after it
};

class FileCalls {
 public:
  // One at a time. `trace` may be null.
  static void Watch(const std::string& directory, DiskTrace* trace);
  static void StopWatching();

  // From now on.
  static void Fail(const FailurePlan& plan);
  // Calls since Fail that could have failed so.
  static int64_t num_calls();
  // Whether the planned failure came.
  static bool failed();
  // The first call that failed so: its kind and file.
  static std::string failed_call();
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_CRASH_FILE_CALLS_H_
