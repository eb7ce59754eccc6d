// RowStore: equal pieces of memory for matrix rows, cut from few large blocks.
//
// Equation:  none.
// Shapes:    a row: [stride] doubles, uninitialised.
// Units:     none.
// Requires:  Give: a row of this store, once.
// Rejects:   none.
// Effects:   rows given back keep their content until they are taken again, or WipeFree or the
//            destructor overwrites it. Blocks grow with their number up to kBlockBytes, which is
//            what huge pages want: hundreds of rows of some 64 KiB each cost a page fault for every
//            4 KiB otherwise. They are freed with the store only.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_ROW_STORE_H_
#define LETHE_MEMORY_SVDD_ROW_STORE_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/base/wiped.h"

namespace lethe::svdd {

class RowStore {
 public:
  static constexpr size_t kBlockBytes = size_t{8} << 20;

  // Of rows of no element.
  RowStore() = default;
  explicit RowStore(size_t stride) : stride_(stride) {}
  RowStore(RowStore&&) = default;
  RowStore& operator=(RowStore&&) = default;
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  // Makes room for this many more rows at once.
  void Reserve(size_t num_rows);
  double* Take();
  void Give(double* row) { given_.push_back(row); }
  void WipeFree();

  size_t stride() const { return stride_; }
  size_t num_free() const { return clean_.size() + given_.size(); }
  size_t state_bytes() const;

 private:
  // Not a vector, which would write its elements.
  struct Overwrite {
    size_t size;
    void operator()(double* block) const { WipingAllocator<double>().deallocate(block, size); }
  };

  void AddBlock(size_t num_rows);

  size_t stride_ = 0;
  size_t num_rows_ = 0;
  std::vector<std::unique_ptr<double[], Overwrite>> blocks_;
  std::vector<double*> clean_;  // no content since allocated or overwritten
  std::vector<double*> given_;
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_ROW_STORE_H_
