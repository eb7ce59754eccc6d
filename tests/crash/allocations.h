// Allocations: counts this process's allocations and makes the n-th fail: malloc returns null, new throws, SQLite and
// OpenSSL say that there is no memory.
//
// The linker puts allocations.cc's malloc, calloc and realloc before the C library's; SQLite's memory methods and operator
// new call these.
//
// Equation:  none.
// Shapes:    none.
// Units:     allocations from 1.
// Requires:  no sanitizer. FailAt with one thread running.
// Rejects:   none.
// Effects:   none beyond this process.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_TESTS_CRASH_ALLOCATIONS_H_
#define LETHE_TESTS_CRASH_ALLOCATIONS_H_

#include <cstdint>

namespace lethe::testing {

class Allocations {
 public:
  // The n-th from now, and all after it with `for_ever`; 0: none, they are counted.
  static void FailAt(int64_t n, bool for_ever);
  static int64_t count();
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_CRASH_ALLOCATIONS_H_
