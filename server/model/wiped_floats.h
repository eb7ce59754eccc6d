// WipedFloats: a vector of float whose storage is overwritten before it is freed.
//
// Equation:  none.
// Shapes:    as std::vector<float>.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   every deallocation, growth included, overwrites the whole old block first; shrinking
//            in place does not.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_MODEL_WIPED_FLOATS_H_
#define LETHE_SERVER_MODEL_WIPED_FLOATS_H_

#include <cstddef>
#include <cstring>
#include <memory>
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

using WipedFloats = std::vector<float, WipingAllocator<float>>;

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_WIPED_FLOATS_H_
