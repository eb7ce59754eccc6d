#include "kernels/ovq/ovq_cuda.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kSegmentBytes = size_t{256}
                                 << 20;  // of changed rows and indices, where chunks allow

// How a call is cut into segments and its workspace into arrays; args is set but for the pointers
// that are the caller's.
class Plan {
 public:
  Plan(const OvqShape& shape, const OvqBatchSize& size, void* workspace)
      : base_(static_cast<char*>(workspace)) {
    dim_ = std::max(shape.key_dim, shape.value_dim) <= 64 ? 64 : 128;
    const int64_t part = kOvqPartElements / dim_;
    const int64_t max_chunks = (size.max_length + 2 * shape.chunk_tokens - 2) / shape.chunk_tokens;
    is_prefill_ = size.max_length > 1;
    max_filled_ = OvqFilledSlots(shape, size.max_tokens_after);
    num_chunks_ = static_cast<int>(max_chunks);
    args_.key_dim = static_cast<int>(shape.key_dim);
    args_.value_dim = static_cast<int>(shape.value_dim);
    args_.chunk_tokens = static_cast<int>(shape.chunk_tokens);
    args_.max_slots = static_cast<int>(shape.max_slots);
    args_.num_heads = static_cast<int>(size.num_heads);
    args_.num_sequences = static_cast<int>(size.num_sequences);
    args_.max_merges =
        static_cast<int>((size.max_length + shape.chunk_tokens - 1) / shape.chunk_tokens);
    args_.num_parts = static_cast<int>(std::max<int64_t>(1, (max_filled_ + part - 1) / part));
    args_.capacity = args_.num_parts * static_cast<int>(part);
    const auto chains = static_cast<size_t>(size.num_heads * size.num_sequences);
    const auto slots = static_cast<size_t>(args_.capacity);
    const auto dim = static_cast<size_t>(dim_);
    Take(&args_.merge_keys, chains * slots * dim);
    Take(&args_.merge_rows, chains * slots);
    const size_t parts = chains * static_cast<size_t>(args_.num_parts + 1);
    Take(&args_.parts, parts * dim);
    Take(&args_.part_stats, parts * 2);
    args_.segment_chunks = 1;
    if (!is_prefill_) return;
    const auto tokens = static_cast<size_t>(shape.chunk_tokens);
    const size_t chunk_bytes = chains * (tokens * (dim * 4 + 4) + slots * 4);
    const size_t most =
        std::clamp<size_t>(size.segment_chunks > 0 ? static_cast<size_t>(size.segment_chunks)
                                                   : kSegmentBytes / chunk_bytes,
                           1, kOvqMaxSegmentChunks);
    const size_t num_segments = (static_cast<size_t>(max_chunks) + most - 1) / most;
    const size_t chunks = (static_cast<size_t>(max_chunks) + num_segments - 1) / num_segments;
    args_.segment_chunks = static_cast<int>(chunks);
    const size_t rows = chains * (slots + chunks * tokens);
    Take(&args_.rows, rows * 2 * dim);
    Take(&args_.row_biases, rows);
    Take(&args_.row_index, chains * chunks * slots);
    Take(&args_.progress, chains * kOvqMaxMergeBlocks);
  }

  int dim() const { return dim_; }
  bool is_prefill() const { return is_prefill_; }
  int num_chunks() const { return num_chunks_; }
  int64_t max_filled() const { return max_filled_; }
  size_t bytes() const { return bytes_; }
  OvqKernelArgs& args() { return args_; }

 private:
  template <typename T>
  void Take(T** array, size_t size) {
    *array = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += (size * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }

  char* const base_;
  OvqKernelArgs args_ = {};
  size_t bytes_ = 0;
  int dim_ = 0;
  bool is_prefill_ = false;
  int num_chunks_ = 0;
  int64_t max_filled_ = 0;
};

}  // namespace

size_t OvqWorkspaceBytesCuda(const OvqShape& shape, const OvqBatchSize& size) {
  return Plan(shape, size, nullptr).bytes();
}

absl::Status OvqBatchCuda(Queue* queue, const OvqShape& shape, const OvqBatchSize& size,
                          const OvqInputs& inputs, const OvqStates& states, float* out,
                          int32_t* assignments, const OvqWorkspace& workspace) {
  Plan plan(shape, size, workspace.data);
  OvqKernelArgs& args = plan.args();
  args.inputs = inputs;
  args.states = states;
  args.out = out;
  args.assignments = assignments;
  // Where all sequences are as long as the longest, none may bring one token.
  if (size.max_length == 1 || size.num_tokens < size.max_length * size.num_sequences) {
    LETHE_RETURN_IF_ERROR(OvqLaunchStep(queue, args, plan.dim(), plan.max_filled()));
  }
  // Where merges leave a quarter of the device free, reads run beside them.
  args.merge_blocks = OvqMergeBlocks(queue, args, plan.dim(), plan.max_filled());
  args.is_overlapped = args.merge_blocks * args.num_heads * args.num_sequences <=
                       queue->num_multiprocessors() * 3 / 4;
  for (; args.first_chunk < plan.num_chunks(); args.first_chunk += args.segment_chunks) {
    if (plan.is_prefill()) LETHE_RETURN_IF_ERROR(OvqLaunchRows(queue, args, plan.dim()));
    LETHE_RETURN_IF_ERROR(OvqLaunchMerge(queue, args, plan.dim(), plan.max_filled()));
    if (!plan.is_prefill()) continue;
    LETHE_RETURN_IF_ERROR(queue->compute_capability() == 90
                              ? OvqLaunchReadSm90(queue, args, plan.dim())
                              : OvqLaunchRead(queue, args, plan.dim()));
  }
  return plan.is_prefill() ? OvqLaunchAppend(queue, args) : absl::OkStatus();
}

}  // namespace lethe
