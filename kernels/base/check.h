// LETHE_CHECK: aborts with file and line when an invariant that a certificate relies on is broken.
// LETHE_DCHECK: the same in debug builds only, for internal invariants.
//
// Requires: never used on input, file or network data (those get an absl::Status).
// Effects:  the message holds the condition's text, never a value: stored content must not reach a log.
// Threads:  safe.
#ifndef LETHE_KERNELS_BASE_CHECK_H_
#define LETHE_KERNELS_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define LETHE_CHECK(condition)                                                           \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#ifdef NDEBUG
#define LETHE_DCHECK(condition)              \
  do {                                       \
    if (false) static_cast<void>(condition); \
  } while (false)
#else
#define LETHE_DCHECK(condition) LETHE_CHECK(condition)
#endif

#endif  // LETHE_KERNELS_BASE_CHECK_H_
