#include "tests/crash/allocations.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace lethe::testing {
namespace {

std::atomic<int64_t> num_allocations{0};
std::atomic<int64_t> first_failure{0};
std::atomic<bool> fails_for_ever{false};

bool Fails() {
  const int64_t n = num_allocations.fetch_add(1, std::memory_order_relaxed) + 1;
  const int64_t first = first_failure.load(std::memory_order_relaxed);
  if (first == 0 || n < first || (n > first && !fails_for_ever.load())) return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

void Allocations::FailAt(int64_t n, bool for_ever) {
  first_failure.store(0);
  num_allocations.store(0);
  fails_for_ever.store(for_ever);
  first_failure.store(n);
}

int64_t Allocations::count() { return num_allocations.load(); }

}  // namespace lethe::testing

extern "C" {

// glibc's own, by the names under which it lets others replace them.
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);

void* malloc(size_t size) noexcept {
  return lethe::testing::Fails() ? nullptr : __libc_malloc(size);
}
void* calloc(size_t count, size_t size) noexcept {
  return lethe::testing::Fails() ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* block, size_t size) noexcept {
  return lethe::testing::Fails() ? nullptr : __libc_realloc(block, size);
}

}  // extern "C"
