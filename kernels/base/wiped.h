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
//            this out.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_KERNELS_BASE_WIPED_H_
#define LETHE_KERNELS_BASE_WIPED_H_

#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

namespace lethe {

template <typename T>
struct WipingAllocator {
  using value_type = T;
  WipingAllocator() = default;
  template <typename U>
  explicit WipingAllocator(const WipingAllocator<U>& /*other*/) {}
  T* allocate(size_t count) { return std::allocator<T>().allocate(count); }
  void deallocate(T* block, size_t count) {
    explicit_bzero(block, count * sizeof(T));
    std::allocator<T>().deallocate(block, count);
  }
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
