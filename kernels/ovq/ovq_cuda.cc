#include "kernels/ovq/ovq_cuda.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kSegmentBytes = size_t{256} << 20;  // of log and partials, where chunks allow

// How a call is cut into segments and its workspace into arrays; args is set but for the pointers
// that are the caller's.
class Plan {
 public:
  Plan(const OvqShape& shape, const OvqBatchSize& size, void* workspace)
      : base_(static_cast<char*>(workspace)) {
    dim_ = std::max(shape.key_dim, shape.value_dim) <= 64 ? 64 : 128;
    const int64_t unit = kOvqUnitElements / dim_;
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
    args_.num_units = static_cast<int>(std::max<int64_t>(1, (max_filled_ + unit - 1) / unit));
    args_.capacity = args_.num_units * static_cast<int>(unit);
    const auto chains = static_cast<size_t>(size.num_heads * size.num_sequences);
    const auto slots = chains * static_cast<size_t>(args_.capacity);
    const auto dim = static_cast<size_t>(dim_);
    Take(&args_.merge_keys, slots * dim);
    if (!is_prefill_) {
      args_.segment_chunks = 1;
      const size_t parts = chains * static_cast<size_t>(2 * args_.num_units + 1);
      Take(&args_.partials, parts * dim);
      Take(&args_.partial_stats, parts * 2);
      return;
    }
    Take(&args_.dictionary_keys, slots * dim);
    Take(&args_.dictionary_values, slots * dim);
    Take(&args_.dictionary_biases, slots);
    const auto tokens = static_cast<size_t>(shape.chunk_tokens);
    const auto units = static_cast<size_t>(args_.num_units);
    const size_t chunk_bytes =
        chains * tokens * (dim * 6 + 8 + units * (dim * sizeof(float) + 2 * sizeof(float)));
    const size_t wanted = size.segment_chunks > 0 ? static_cast<size_t>(size.segment_chunks)
                                                  : kSegmentBytes / chunk_bytes;
    args_.segment_chunks = static_cast<int>(std::clamp<size_t>(
        wanted, 1, static_cast<size_t>(std::min<int64_t>(max_chunks, kOvqMaxSegmentChunks))));
    const size_t rows = chains * static_cast<size_t>(args_.segment_chunks) * tokens;
    Take(&args_.log_slots, rows);
    Take(&args_.log_keys, rows * dim);
    Take(&args_.log_values, rows * dim);
    Take(&args_.log_biases, rows);
    // Sequences of one token in the same call use the partials before the others do.
    const size_t partials =
        std::max(rows * units, chains * static_cast<size_t>(2 * args_.num_units + 1));
    Take(&args_.partials, partials * dim);
    Take(&args_.partial_stats, partials * 2);
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
  LETHE_RETURN_IF_ERROR(OvqLaunchStep(queue, args, plan.dim(), plan.max_filled()));
  if (plan.is_prefill()) LETHE_RETURN_IF_ERROR(OvqLaunchDictionary(queue, args, plan.dim()));
  for (; args.first_chunk < plan.num_chunks(); args.first_chunk += args.segment_chunks) {
    LETHE_RETURN_IF_ERROR(OvqLaunchMerge(queue, args, plan.dim(), plan.max_filled()));
    if (!plan.is_prefill()) continue;
    LETHE_RETURN_IF_ERROR(OvqLaunchRead(queue, args, plan.dim()));
    LETHE_RETURN_IF_ERROR(OvqLaunchChunk(queue, args, plan.dim()));
  }
  return plan.is_prefill() ? OvqLaunchAppend(queue, args) : absl::OkStatus();
}

}  // namespace lethe
