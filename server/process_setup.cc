#include "server/process_setup.h"

#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>

namespace lethe {

void ForbidDumps() {
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

void KeepFreedMemory(int compute_threads) {
  mallopt(M_ARENA_MAX, compute_threads + 1);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_TOP_PAD, 4 << 20);          // arenas grow in few steps
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // glibc's maximum: below it, memory comes from the arena
}

}  // namespace lethe
