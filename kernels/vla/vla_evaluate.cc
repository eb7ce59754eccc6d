#include "kernels/vla/vla_evaluate.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "kernels/vla/vla_chunk.h"
#include "kernels/vla/vla_fold.h"

namespace lethe {
namespace {

constexpr int64_t kAlignment = 256;  // of everything in the workspace
constexpr int64_t kTokensMax = std::numeric_limits<int32_t>::max();

// Tokens that lie behind each other both in the call and in a part of it.
struct Run {
  int64_t from;
  int64_t to;
  int64_t count;
};

// What one form takes of a call.
struct Part {
  std::vector<Run> runs;
  std::vector<int32_t> offsets = {0};
  std::vector<int32_t> slots;
  std::vector<int64_t> ranks;
  int64_t max_length = 0;

  int64_t num_tokens() const { return offsets.back(); }

  void Add(const VlaSequence& sequence, int64_t rank, int64_t from, int64_t count) {
    if (count == 0) return;
    if (!runs.empty() && runs.back().from + runs.back().count == from) {
      runs.back().count += count;
    } else {
      runs.push_back({from, num_tokens(), count});
    }
    offsets.push_back(offsets.back() + static_cast<int32_t>(count));
    slots.push_back(sequence.slot);
    ranks.push_back(rank);
    max_length = std::max(max_length, count);
  }
};

struct Plan {
  Part chunks;
  Part steps;
  std::vector<int32_t> restarted;  // slots whose (a, s) is their boundary's before the steps
  int64_t num_tokens = 0;
};

Plan MakePlan(const VlaOptions& options, absl::Span<const VlaSequence> sequences) {
  const bool has_chunks = VlaChunkCovers(options);
  Plan plan;
  for (const VlaSequence& sequence : sequences) {
    const bool is_at_boundary = has_chunks && sequence.rank % kVlaChunkTokens == 0;
    const int64_t whole = is_at_boundary ? sequence.count / kVlaChunkTokens * kVlaChunkTokens : 0;
    plan.chunks.Add(sequence, sequence.rank, plan.num_tokens, whole);
    plan.steps.Add(sequence, sequence.rank + whole, plan.num_tokens + whole,
                   sequence.count - whole);
    if (is_at_boundary && sequence.count > 0) plan.restarted.push_back(sequence.slot);
    plan.num_tokens += sequence.count;
  }
  return plan;
}

absl::Status Check(const VlaOptions& options, absl::Span<const VlaSequence> sequences) {
  std::vector<int32_t> slots;
  int64_t num_tokens = 0;
  for (const VlaSequence& sequence : sequences) {
    num_tokens += sequence.count;
    if (sequence.rank < 0 || sequence.count < 0 || num_tokens > kTokensMax) {
      return absl::InvalidArgumentError(absl::StrCat("VLA: a sequence of ", sequence.count,
                                                     " tokens from rank ", sequence.rank,
                                                     ", a call may hold ", kTokensMax));
    }
    const int64_t begun = sequence.rank % kVlaChunkTokens;
    if (VlaChunkCovers(options) && begun > 0 && begun + sequence.count >= kVlaChunkTokens) {
      return absl::InvalidArgumentError(absl::StrCat(
          "VLA: a sequence from rank ", sequence.rank, " reaches the end of its chunk: ",
          "bring the tokens from rank ", sequence.rank - begun, " on"));
    }
    slots.push_back(sequence.slot);
  }
  std::sort(slots.begin(), slots.end());
  if (std::adjacent_find(slots.begin(), slots.end()) != slots.end()) {
    return absl::InvalidArgumentError("VLA: a slot comes twice");
  }
  return absl::OkStatus();
}

// Cuts the workspace, or counts what it needs where that is null.
class Cutter {
 public:
  explicit Cutter(void* workspace) : next_(static_cast<char*>(workspace)) {}

  template <typename T>
  T* Cut(int64_t size) {
    auto* const cut = reinterpret_cast<T*>(next_);
    const int64_t bytes = size * static_cast<int64_t>(sizeof(T));
    const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (next_ != nullptr) next_ += rounded;
    used_ += rounded;
    return cut;
  }
  int64_t used() const { return used_; }

 private:
  char* next_;
  int64_t used_ = 0;
};

// A part's places and, where it is not the whole call, its inputs and reads, on the device.
struct DevicePart {
  int32_t* offsets;
  int32_t* slots;
  int64_t* ranks;
  float *q, *k, *v, *write_direction, *out;
};

DevicePart CutPart(const VlaOptions& options, const Part& part, bool is_whole_call,
                   Cutter* cutter) {
  const int64_t num_sequences = static_cast<int64_t>(part.slots.size());
  const int64_t tokens = is_whole_call ? 0 : part.num_tokens() * options.num_heads;
  DevicePart cut{};
  cut.offsets = cutter->Cut<int32_t>(num_sequences + 1);
  cut.slots = cutter->Cut<int32_t>(num_sequences);
  cut.ranks = cutter->Cut<int64_t>(num_sequences);
  cut.q = cutter->Cut<float>(tokens * options.key_dim);
  cut.k = cutter->Cut<float>(tokens * options.key_dim);
  cut.v = cutter->Cut<float>(tokens * options.value_dim);
  cut.write_direction = cutter->Cut<float>(tokens * options.key_dim);
  cut.out = cutter->Cut<float>(tokens * options.value_dim);
  return cut;
}

absl::Status CopyRuns(Queue* queue, const std::vector<Run>& runs, int64_t row, const float* from,
                      float* to) {
  for (const Run& run : runs) {
    LETHE_RETURN_IF_ERROR(queue->CopyOnDevice(from + run.from * row,
                                              static_cast<size_t>(run.count * row) * sizeof(float),
                                              to + run.to * row));
  }
  return absl::OkStatus();
}

// A part of the call while it is evaluated.
class PartCall {
 public:
  PartCall(Queue* queue, const VlaOptions& options, const VlaEvaluation& evaluation,
           const Part& part, const DevicePart& device, bool is_whole_call)
      : queue_(queue),
        options_(options),
        evaluation_(evaluation),
        part_(part),
        device_(device),
        is_whole_call_(is_whole_call) {}

  // Brings the part's places and inputs to the device's arrays.
  absl::Status Bring() {
    const auto bring = [&](const auto& values, auto* to) {
      return queue_->CopyToDevice(values.data(), values.size() * sizeof(values[0]), to);
    };
    LETHE_RETURN_IF_ERROR(bring(part_.offsets, device_.offsets));
    LETHE_RETURN_IF_ERROR(bring(part_.slots, device_.slots));
    LETHE_RETURN_IF_ERROR(bring(part_.ranks, device_.ranks));
    const int64_t keys = options_.num_heads * options_.key_dim;
    const int64_t values = options_.num_heads * options_.value_dim;
    if (evaluation_.out != nullptr) {
      LETHE_RETURN_IF_ERROR(Gather(evaluation_.q, keys, &device_.q));
    }
    LETHE_RETURN_IF_ERROR(Gather(evaluation_.k, keys, &device_.k));
    LETHE_RETURN_IF_ERROR(Gather(evaluation_.v, values, &device_.v));
    LETHE_RETURN_IF_ERROR(Gather(evaluation_.write_direction, keys, &device_.write_direction));
    if (evaluation_.out == nullptr || is_whole_call_) device_.out = evaluation_.out;
    return absl::OkStatus();
  }

  // Brings its reads to the call's.
  absl::Status Return() {
    if (evaluation_.out == nullptr || is_whole_call_) return absl::OkStatus();
    std::vector<Run> back = part_.runs;
    for (Run& run : back) std::swap(run.from, run.to);
    return CopyRuns(queue_, back, options_.num_heads * options_.value_dim, device_.out,
                    evaluation_.out);
  }

  const DevicePart& device() const { return device_; }

 private:
  absl::Status Gather(const float* from, int64_t row, float** to) {
    if (from == nullptr) {
      *to = nullptr;
      return absl::OkStatus();
    }
    if (!is_whole_call_) return CopyRuns(queue_, part_.runs, row, from, *to);
    *to = const_cast<float*>(from);
    return absl::OkStatus();
  }

  Queue* queue_;
  const VlaOptions& options_;
  const VlaEvaluation& evaluation_;
  const Part& part_;
  DevicePart device_;
  bool is_whole_call_;
};

absl::Status EvaluateChunks(Queue* queue, const VlaOptions& options,
                            const VlaEvaluation& evaluation, const Part& part, PartCall* call,
                            void* workspace, int64_t workspace_bytes) {
  LETHE_RETURN_IF_ERROR(call->Bring());
  const DevicePart& device = call->device();
  const VlaChunkBatch batch{static_cast<int64_t>(part.slots.size()),
                            part.num_tokens(),
                            device.offsets,
                            device.slots,
                            device.q,
                            device.k,
                            device.v,
                            device.write_direction,
                            evaluation.gram,
                            evaluation.boundary_s,
                            evaluation.boundary_a,
                            device.out};
  LETHE_RETURN_IF_ERROR(VlaChunk(queue, options, batch, workspace, workspace_bytes));
  return call->Return();
}

absl::Status EvaluateSteps(Queue* queue, const VlaOptions& options, const VlaEvaluation& evaluation,
                           const Part& part, PartCall* call) {
  LETHE_RETURN_IF_ERROR(call->Bring());
  const DevicePart& device = call->device();
  VlaBatch batch;
  batch.num_sequences = static_cast<int64_t>(part.slots.size());
  batch.num_tokens = part.num_tokens();
  batch.max_length = part.max_length;
  batch.offsets = device.offsets;
  batch.slots = device.slots;
  batch.step_counts = device.ranks;
  batch.q = device.q;
  batch.k = device.k;
  batch.v = device.v;
  batch.write_direction = device.write_direction;
  batch.a = evaluation.a;
  batch.s = evaluation.s;
  batch.key_sum = evaluation.key_sum;
  batch.out = device.out;
  LETHE_RETURN_IF_ERROR(VlaFold(queue, options, batch));
  return call->Return();
}

// (a, s) of the slots from their boundaries.
absl::Status Restart(Queue* queue, const VlaOptions& options, const VlaEvaluation& evaluation,
                     const std::vector<int32_t>& slots) {
  const int64_t keys = options.num_heads * options.key_dim;
  for (const int32_t slot : slots) {
    const std::vector<Run> state = {{slot, slot, 1}};
    LETHE_RETURN_IF_ERROR(
        CopyRuns(queue, state, keys * options.key_dim, evaluation.boundary_a, evaluation.a));
    LETHE_RETURN_IF_ERROR(
        CopyRuns(queue, state, keys * options.value_dim, evaluation.boundary_s, evaluation.s));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t VlaEvaluateWorkspaceBytes(const VlaOptions& options,
                                  absl::Span<const VlaSequence> sequences) {
  const Plan plan = MakePlan(options, sequences);
  Cutter cutter(nullptr);
  for (const Part* part : {&plan.chunks, &plan.steps}) {
    CutPart(options, *part, part->num_tokens() == plan.num_tokens, &cutter);
  }
  return cutter.used() + VlaChunkWorkspaceBytes(options, plan.chunks.num_tokens());
}

absl::Status VlaEvaluate(Queue* queue, const VlaOptions& options, const VlaEvaluation& evaluation,
                         void* workspace, int64_t workspace_bytes) {
  LETHE_RETURN_IF_ERROR(Check(options, evaluation.sequences));
  const Plan plan = MakePlan(options, evaluation.sequences);
  if (plan.num_tokens == 0) return absl::OkStatus();
  const int64_t bytes = VlaEvaluateWorkspaceBytes(options, evaluation.sequences);
  if (workspace == nullptr || workspace_bytes < bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("VLA: a workspace of ", workspace_bytes, " bytes, want at least ", bytes));
  }
  Cutter cutter(workspace);
  const bool has_one_form =
      plan.chunks.num_tokens() == plan.num_tokens || plan.steps.num_tokens() == plan.num_tokens;
  PartCall chunks(queue, options, evaluation, plan.chunks,
                  CutPart(options, plan.chunks, has_one_form, &cutter), has_one_form);
  PartCall steps(queue, options, evaluation, plan.steps,
                 CutPart(options, plan.steps, has_one_form, &cutter), has_one_form);
  if (plan.chunks.num_tokens() > 0) {
    char* const rest = static_cast<char*>(workspace) + cutter.used();
    LETHE_RETURN_IF_ERROR(EvaluateChunks(queue, options, evaluation, plan.chunks, &chunks, rest,
                                         workspace_bytes - cutter.used()));
  }
  LETHE_RETURN_IF_ERROR(Restart(queue, options, evaluation, plan.restarted));
  if (plan.steps.num_tokens() == 0) return absl::OkStatus();
  return EvaluateSteps(queue, options, evaluation, plan.steps, &steps);
}

}  // namespace lethe
