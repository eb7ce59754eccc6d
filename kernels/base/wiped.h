// WipedVector, WipeFrom, WipeAll: storage of a session's content and of numbers computed from it, which
// is overwritten before it is freed or dropped.
//
// Equation:  none.
// Shapes:    as std::vector.
// Units:     none.
// Requires:  T trivially copyable; begin <= size() (else no effect).
// Rejects:   none.
// Effects:   WipedVector: every deallocation, growth included, overwrites the whole old block first;
//            shrinking in place does not. WipeFrom overwrites and drops the elements from `begin`;
//            WipeAll overwrites the whole capacity and frees it. The compiler may not leave any of
//            this out. Blocks of half of kHugePageBytes and more are rounded up to huge pages: first
//            touching 32 MB took 116 to 153 ms in pages of 4 KiB on a virtual machine, 3.5 in huge ones.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_KERNELS_BASE_WIPED_H_
#define LETHE_KERNELS_BASE_WIPED_H_

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include <sys/mman.h>

namespace lethe {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

template <typename T>
struct WipingAllocator {
  using value_type = T;
  WipingAllocator() = default;
  template <typename U>
  explicit WipingAllocator(const WipingAllocator<U>& /*other*/) {}
  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (!IsHuge(bytes)) return std::allocator<T>().allocate(count);
    // Whole ones: the rest would be touched in small pages. Advice only, it may not be taken.
    const size_t whole = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    void* block = ::operator new (whole, std::align_val_t{kHugePageBytes});
    static_cast<void>(madvise(block, whole, MADV_HUGEPAGE));
    return static_cast<T*>(block);
  }
  void deallocate(T* block, size_t count) {
    const size_t bytes = count * sizeof(T);
    explicit_bzero(block, bytes);
    if (!IsHuge(bytes)) {
      std::allocator<T>().deallocate(block, count);
    } else {
      ::operator delete (block, std::align_val_t{kHugePageBytes});
    }
  }
  static bool IsHuge(size_t bytes) { return bytes >= kHugePageBytes / 2; }
  bool operator==(const WipingAllocator& /*other*/) const { return true; }
};

template <typename T>
using WipedVector = std::vector<T, WipingAllocator<T>>;
using WipedFloats = WipedVector<float>;

template <typename T, typename Allocator>
void WipeFrom(std::vector<T, Allocator>* values, size_t begin) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (begin >= values->size()) return;
  explicit_bzero(values->data() + begin, (values->size() - begin) * sizeof(T));
  values->resize(begin);
}

template <typename T, typename Allocator>
void WipeAll(std::vector<T, Allocator>* values) {
  values->resize(values->capacity());
  WipeFrom(values, 0);
  std::vector<T, Allocator>().swap(*values);
}

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_WIPED_H_
