#include "memory/svdd/row_store.h"

#include <algorithm>
#include <cstring>

namespace lethe::svdd {
namespace {

constexpr size_t kFirstRows = 8;

}  // namespace

void RowStore::AddBlock(size_t num_rows) {
  const size_t size = num_rows * stride_;
  blocks_.emplace_back(WipingAllocator<double>().allocate(size), Overwrite{size});
  num_rows_ += num_rows;
  // Taken from the back: ascending.
  for (size_t i = num_rows; i-- > 0;) clean_.push_back(blocks_.back().get() + i * stride_);
}

void RowStore::Reserve(size_t num_rows) {
  if (num_rows > num_free()) AddBlock(num_rows - num_free());
}

double* RowStore::Take() {
  if (!given_.empty()) {
    double* row = given_.back();
    given_.pop_back();
    return row;
  }
  if (clean_.empty()) {
    const size_t largest = std::max<size_t>(1, kBlockBytes / (stride_ * sizeof(double)));
    AddBlock(std::min(largest, std::max(kFirstRows, num_rows_ / 2)));
  }
  double* row = clean_.back();
  clean_.pop_back();
  return row;
}

void RowStore::WipeFree() {
  for (double* row : given_) explicit_bzero(row, stride_ * sizeof(double));
  clean_.insert(clean_.end(), given_.begin(), given_.end());
  given_.clear();
}

size_t RowStore::state_bytes() const {
  return num_rows_ * stride_ * sizeof(double) +
         (clean_.capacity() + given_.capacity()) * sizeof(double*);
}

}  // namespace lethe::svdd
