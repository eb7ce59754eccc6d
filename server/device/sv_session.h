// SvSession, AdvanceSvSessions: the support-vector groups of one session on a device. The gates are solved on
// the host; the device has what reads need, the gated support and the tail since the last boundary.
//
// Equation:  memory/svdd/sv_memory.h for every group of kind sv, in the order of layers and groups.
// Shapes:    group g is the g-th sv group of the model.
// Units:     tokens; ranks from 0.
// Requires:  queue and model outlive the session. Take: the device's tails took `count` tokens, none past the
//            next multiple of 64; at one AdvanceSvSessions follows before the next. config: the model's, its
//            sv options perhaps others. Restore: a snapshot of this session or of one that it was cloned from.
//            AppendDigestParts, group: behind Sync.
// Rejects:   Create, Clone: RESOURCE_EXHAUSTED when the device is full. All: INTERNAL with the device's message,
//            or where the memory refuses a token; then the session may only be destroyed or restored.
// Effects:   Sync brings the tail's new tokens to the host and waits for the queue. AdvanceSvSessions does so
//            for the sessions at a boundary, solves their gates on up to num_threads threads, and uploads the
//            new supports; a status a session. Restore and Clone upload too; no byte behind what a session
//            holds is left of what it held. Arrays are overwritten before they are freed.
// Numerics:  gates, digest parts and the uploaded support have the bits of SvMemory.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_SERVER_DEVICE_SV_SESSION_H_
#define LETHE_SERVER_DEVICE_SV_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "audit/state/state_digest.h"
#include "kernels/base/queue.h"
#include "kernels/base/wiped.h"
#include "kernels/sv_read/sv_read_batch.h"
#include "server/device/device_model.h"
#include "server/model/memory_group.h"

namespace lethe {

bool HasSvGroups(const ModelConfig& config);

class SvSession {
 public:
  using Snapshot = std::vector<MemoryGroup::Snapshot>;  // by group, without tails of convolutions

  static absl::StatusOr<std::unique_ptr<SvSession>> Create(
      const DeviceModel* model, std::shared_ptr<const ModelConfig> config);

  int64_t num_tokens() const { return num_tokens_; }
  void Take(int64_t count) { num_tokens_ += count; }
  absl::Status Sync();

  absl::StatusOr<Snapshot> TakeSnapshot();
  absl::Status Restore(const Snapshot& snapshot);
  absl::StatusOr<std::unique_ptr<SvSession>> Clone();

  size_t num_groups() const { return groups_.size(); }
  const MemoryGroup& group(size_t index) const { return *groups_[index].memory; }
  // Head and memory parts of one group, as MemoryGroup names them.
  void AppendDigestParts(size_t index, const std::string& prefix, audit::StateParts* parts) const;

  // What SvReadBatch is told of a group. Another stamp, of all sessions, whenever it changes.
  absl::Span<const SvReadHead> heads(size_t index) const { return groups_[index].heads; }
  uint64_t stamp() const { return stamp_; }
  int64_t most_distinct() const { return most_distinct_; }
  size_t device_bytes() const;
  size_t host_bytes() const;

 private:
  friend std::vector<absl::Status> AdvanceSvSessions(absl::Span<SvSession* const> sessions,
                                                     int64_t num_threads);
  struct Group {
    const GroupConfig* config = nullptr;
    const GroupWeights* weights = nullptr;
    std::unique_ptr<MemoryGroup> memory;
    DeviceArray<float> tail_keys;    // [H][64][K]
    DeviceArray<float> tail_values;  // [H][64][V]
    DeviceArray<std::byte> support;  // per head keys, key_of, gates, values
    std::vector<SvReadHead> heads;
    WipedFloats pending_keys;  // [count][H][K], on their way to the memory
    WipedFloats pending_values;
  };

  SvSession(const DeviceModel* model, std::shared_ptr<const ModelConfig> config)
      : model_(model), config_(std::move(config)) {}
  bool is_at_boundary() const;
  int64_t num_on_host() const;
  static absl::StatusOr<std::unique_ptr<SvSession>> Empty(
      const DeviceModel* model, std::shared_ptr<const ModelConfig> config);
  absl::Status Download();
  absl::Status Write(size_t index);
  absl::Status UploadSupport();
  absl::Status UploadSupport(Group* group);
  absl::Status UploadTails();

  const DeviceModel* model_;
  std::shared_ptr<const ModelConfig> config_;
  int64_t num_tokens_ = 0;
  int64_t num_pending_ = 0;
  int64_t most_distinct_ = 0;
  uint64_t stamp_ = 0;
  std::vector<Group> groups_;
};

std::vector<absl::Status> AdvanceSvSessions(absl::Span<SvSession* const> sessions,
                                            int64_t num_threads);

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_SV_SESSION_H_
