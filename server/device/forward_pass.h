// ForwardPass: the layers and buffers of a DeviceForward, and one pass of them; internal to server/device.
//
// Equation:  as device_forward.h.
// Shapes:    as device_forward.h.
// Units:     tokens.
// Requires:  what DeviceForward has validated; `taken[i]` of sequence i have been taken, `counts[i]` follow,
//            for i in `indexes`.
// Rejects:   Create, Run: as DeviceForward's Create and Evaluate.
// Effects:   Run advances the slots and is finished on return. On CUDA a pass of one token a sequence is
//            padded to one of a few sizes; when a size recurs its launches are recorded, and then launched
//            as one.
// Numerics:  as device_forward.h; neither padding nor recording reaches a bit.
// Threads:   the queue's owner.
#ifndef LETHE_SERVER_DEVICE_FORWARD_PASS_H_
#define LETHE_SERVER_DEVICE_FORWARD_PASS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/launch_graph.h"
#include "server/device/batch_metadata.h"
#include "server/device/device_forward.h"
#include "server/device/device_layer.h"

namespace lethe {

// INVALID_ARGUMENT that names the limit unless 1 <= value <= most.
absl::Status CheckLimit(const char* name, int64_t value, int64_t most);

class ForwardPass {
 public:
  static absl::StatusOr<std::unique_ptr<ForwardPass>> Create(const DeviceModel* model,
                                                             StatePool* pool,
                                                             const ForwardLimits& limits);

  absl::Status Run(absl::Span<const ForwardSequence> sequences, absl::Span<const size_t> indexes,
                   absl::Span<const size_t> taken, absl::Span<const size_t> counts,
                   std::vector<absl::Status>* statuses);
  absl::Status Wipe();
  // Then a pass may not go beyond the end of a chunk, and every sequence has an SvSession.
  bool has_sv_groups() const { return has_sv_groups_; }
  size_t num_graphs() const;

 private:
  // Where a row of logits goes on the host.
  struct Destination {
    size_t sequence;
    float* all_logits;  // or null
    float* logits;      // or null
  };
  // What a recorded step depends on besides the memory that it reads.
  struct StepShape {
    int64_t num_sequences;
    int64_t most_tokens_after;  // 0 where no layer asks
    bool has_logits;
    int64_t most_distinct;
    auto operator<=>(const StepShape&) const = default;
  };

  explicit ForwardPass(const DeviceModel* model) : model_(model), queue_(model->queue()) {}
  absl::Status Allocate(const BufferPlan& plan);
  void TakeMetadata(absl::Span<const ForwardSequence> sequences, absl::Span<const size_t> indexes,
                    absl::Span<const size_t> taken, absl::Span<const size_t> counts);
  int64_t MostDistinct() const;
  absl::Status Enqueue(int64_t most_tokens_after, int64_t most_distinct, int64_t num_logit_rows);
  absl::Status EnqueueStep();
  absl::Status Layers(int64_t most_tokens_after, int64_t most_distinct);
  absl::Status Logits(int64_t first, int64_t count);
  absl::Status CopyResults(int64_t num_logit_rows);
  void TakeStatuses(absl::Span<const size_t> indexes, absl::Span<const size_t> counts,
                    std::vector<absl::Status>* statuses) const;
  void AdvanceSv(absl::Span<const size_t> indexes, absl::Span<const size_t> counts,
                 std::vector<absl::Status>* statuses) const;
  void GiveLogits(int64_t first, int64_t count, const std::vector<absl::Status>& statuses) const;
  int64_t vocab_size() const { return model_->model().config().vocab_size; }
  int64_t width() const { return model_->model().config().width; }
  uint8_t* is_bad() { return reinterpret_cast<uint8_t*>(results_.data()); }
  float* logits() { return reinterpret_cast<float*>(results_.data() + logits_at_); }

  const DeviceModel* model_;
  Queue* queue_;
  ForwardLimits limits_;
  bool has_sv_groups_ = false;
  bool has_dictionaries_ = false;  // whose kernels are told how full they may be
  int64_t max_logit_rows_ = 0;
  std::vector<std::unique_ptr<DeviceLayer>> layers_;
  BatchMetadata metadata_;
  SvTables sv_tables_;
  std::vector<SvSession*> sv_;  // of this pass, by sequence
  std::vector<int32_t> slots_;
  std::vector<Destination> destinations_;  // of this pass, by row of logits
  DeviceArray<std::byte> activations_;
  DeviceArray<float> x_;  // the residual stream is x + y (device_layer.h)
  DeviceArray<float> y_;
  DeviceArray<float> picked_;  // rows of x whose logits are asked for
  // is_bad, then rows of logits: on the device, and what came back of them.
  DeviceArray<std::byte> results_;
  HostArray<std::byte> results_on_host_;
  size_t logits_at_ = 0;
  std::map<StepShape, std::optional<LaunchGraph>> graphs_;  // none yet: the shape was seen once
};

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_FORWARD_PASS_H_
