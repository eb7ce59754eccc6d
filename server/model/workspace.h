// Workspace: the scratch buffers of one ModelState for a block of tokens; allocated once.
//
// Equation:  none.
// Shapes:    each buffer holds kBlockTokens rows of the widest layer that uses it.
// Units:     floats.
// Requires:  rows * columns within a buffer's size (checked by LETHE_CHECK).
// Rejects:   none.
// Effects:   overwritten on destruction: it holds features of the last block.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_MODEL_WORKSPACE_H_
#define LETHE_SERVER_MODEL_WORKSPACE_H_

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"

#include "kernels/base/check.h"
#include "kernels/base/wiped.h"
#include "server/model/config.h"

namespace lethe {

// Tokens that the local layers and matrix products evaluate together.
inline constexpr int64_t kBlockTokens = 64;

class Workspace {
 public:
  // The columns that each kind of buffer needs at least.
  struct Columns {
    int64_t width = 0;
    int64_t inner = 0;  // projections, mlp hidden, memory heads
  };
  static Columns ColumnsOf(const ModelConfig& config);

  explicit Workspace(const Columns& columns) {
    for (WipedFloats* buffer : {&x_, &h_, &y_}) Resize(columns.width, buffer);
    for (WipedFloats& buffer : inner_) Resize(std::max(columns.inner, columns.width), &buffer);
  }

  absl::Span<float> x(int64_t size) { return Take(&x_, size); }
  absl::Span<float> h(int64_t size) { return Take(&h_, size); }
  absl::Span<float> y(int64_t size) { return Take(&y_, size); }
  // Buffers for projections and the like; a user names the ones it takes by index.
  static constexpr int kNumInner = 10;
  absl::Span<float> inner(int index, int64_t size) { return Take(&inner_[index], size); }

 private:
  static void Resize(int64_t columns, WipedFloats* buffer) {
    buffer->resize(static_cast<size_t>(kBlockTokens * columns));
  }
  static absl::Span<float> Take(WipedFloats* buffer, int64_t size) {
    LETHE_CHECK(size >= 0 && static_cast<size_t>(size) <= buffer->size());
    return absl::MakeSpan(buffer->data(), static_cast<size_t>(size));
  }

  WipedFloats x_;
  WipedFloats h_;
  WipedFloats y_;
  WipedFloats inner_[kNumInner];
};

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_WORKSPACE_H_
