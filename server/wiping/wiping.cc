#include "server/wiping/wiping.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <sys/uio.h>
#include <unistd.h>

#include "server/wiping/dead_stacks.h"

namespace lethe {
namespace {

constexpr unsigned char kFill = 0xa7;
// What the C library writes at the start of a freed block, rounded up.
constexpr size_t kLinkBytes = 32;

void* Filled(size_t bytes) {
  void* const block = std::malloc(bytes);
  if (block == nullptr) std::abort();
  std::memset(block, kFill, bytes);
  asm volatile("" : : "r"(block) : "memory");  // a store before free may not be left out
  return block;
}

// True when nothing of the fill is at the address. Read by the system: memory that was given back must not be touched.
// `seen` was made before: it could else take the place that is looked at.
bool IsGone(uintptr_t address, size_t bytes, std::vector<unsigned char>* seen) {
  const iovec local{seen->data(), bytes};
  const iovec remote{reinterpret_cast<void*>(address), bytes};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) < 0) return true;  // unmapped
  const auto end = seen->begin() + static_cast<ptrdiff_t>(bytes);
  return std::find(seen->begin() + kLinkBytes, end, kFill) == end;
}

bool HeapWipes() {
  constexpr size_t kSizes[] = {64, 1000, 5000, 200'000};
  std::vector<unsigned char> seen(kSizes[3]);
  for (const size_t bytes : kSizes) {
    void* const freed = Filled(bytes);
    auto address = reinterpret_cast<uintptr_t>(freed);
    std::free(freed);
    bool gone = IsGone(address, bytes, &seen);
    for (const size_t wanted : {3 * bytes, size_t{8}}) {
      void* const old = Filled(bytes);
      address = reinterpret_cast<uintptr_t>(old);
      void* const moved = std::realloc(old, wanted);
      if (moved == nullptr) std::abort();
      if (reinterpret_cast<uintptr_t>(moved) != address) gone &= IsGone(address, bytes, &seen);
      std::free(moved);
    }
    if (!gone) return false;
  }
  return true;
}

bool StacksAreKnown() {
  bool known = false;
  std::thread([&] { known = OwnStackIsKnown(); }).join();
  return known;
}

}  // namespace

bool ProcessWipes() { return HeapWipes() && StacksAreKnown(); }

}  // namespace lethe
