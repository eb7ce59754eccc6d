// free and realloc of a program that wipes: no byte stays in memory that was given back.
//
// They replace the C library's, for every library in the process (operator delete ends in free; the C library calls
// these two itself where its documentation says that an allocator may be replaced). What is allocated is still the C
// library's, so malloc, calloc and the aligned forms need no replacement: an allocation has nothing old in it.
//
// realloc never moves or shrinks a block behind our back: the C library would copy, and give back what it copied from,
// without passing here.

#include <cstdlib>
#include <cstring>

#include <malloc.h>

#include "kernels/base/fault.h"

extern "C" {

// glibc's own, exported for allocators that wrap it.
void __libc_free(void* block);  // NOLINT(bugprone-reserved-identifier): glibc's name

void free(void* block) noexcept {
  if (block == nullptr) return;
  if (!lethe::FaultActive(lethe::Fault::kFreedMemoryKept)) {
    explicit_bzero(block, malloc_usable_size(block));
  }
  __libc_free(block);
}

void* realloc(void* block, size_t bytes) noexcept {
  if (block == nullptr) return malloc(bytes);
  if (bytes == 0) {  // as glibc has it
    free(block);
    return nullptr;
  }
  const size_t held = malloc_usable_size(block);
  // Kept where it fits and is not mostly empty then.
  if (bytes <= held && bytes >= held / 2) {
    explicit_bzero(static_cast<char*>(block) + bytes, held - bytes);
    return block;
  }
  void* moved = malloc(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, bytes < held ? bytes : held);
  free(block);
  return moved;
}

}  // extern "C"
