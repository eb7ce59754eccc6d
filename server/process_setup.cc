#include "server/process_setup.h"

#include <cstdlib>
#include <new>

#include <fcntl.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lethe {

void ForbidDumps() {
  // Before the process stops being dumpable: the file is root's from then on.
  const int filter = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
  if (filter >= 0) {
    static_cast<void>(!write(filter, "0", 1));
    close(filter);
  }
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

void MakePrivateFiles() { umask(S_IRWXG | S_IRWXO); }

void KeepFreedMemory(int compute_threads) {
  mallopt(M_ARENA_MAX, compute_threads + 1);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_TOP_PAD, 4 << 20);          // arenas grow in few steps
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // glibc's maximum: below it, memory comes from the arena
}

void EndWhenOutOfMemory() {
  std::set_new_handler([] {
    // Without an allocation.
    static constexpr char kMessage[] = "lethe-server: out of memory; the server ends\n";
    if (write(STDERR_FILENO, kMessage, sizeof kMessage - 1) < 0) std::_Exit(1);
    std::_Exit(1);
  });
}

}  // namespace lethe
