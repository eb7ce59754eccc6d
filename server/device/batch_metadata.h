// BatchMetadata: what the kernels of one pass are told of its sequences, in one block that goes to the device
// in one copy; internal to server/device.
//
// Equation:  none.
// Shapes:    offsets [max_sequences + 1] in 64 and in 32 bits, ranks, slots [max_sequences], vocab_ids and
//            logit_rows [max_tokens].
// Units:     as packed_sequences.h.
// Requires:  Begin, then Add within the limits, perhaps Pad, then Upload (LETHE_CHECK); the queue has done an
//            Upload before the next Begin.
// Rejects:   Create: RESOURCE_EXHAUSTED.
// Effects:   Upload enqueues the copy. Wipe overwrites both sides.
// Numerics:  none.
// Threads:   the queue's owner.
#ifndef LETHE_SERVER_DEVICE_BATCH_METADATA_H_
#define LETHE_SERVER_DEVICE_BATCH_METADATA_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/packed_sequences.h"
#include "kernels/base/queue.h"

namespace lethe {

class BatchMetadata {
 public:
  static absl::StatusOr<BatchMetadata> Create(Queue* queue, int64_t max_tokens,
                                              int64_t max_sequences);

  void Begin();
  void Add(int32_t slot, int64_t rank, absl::Span<const int32_t> vocab_ids);
  void AddLogitRow(int64_t row);
  // Sequences without tokens up to num_sequences, and rows that are nobody's up to as many tokens: the shape of
  // a decode step that can be launched again for other sessions. The added rows' logits may be asked for.
  void Pad(int64_t num_sequences);
  absl::Status Upload();
  absl::Status Wipe();

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_logit_rows() const { return num_logit_rows_; }
  int64_t most_tokens_after() const { return most_tokens_after_; }
  // On the device, as of the last Upload.
  PackedSequences sequences() const;
  const int32_t* offsets() const { return At<int32_t>(device_.data(), offsets_at_); }
  const int32_t* vocab_ids() const { return At<int32_t>(device_.data(), vocab_ids_at_); }
  const int32_t* logit_rows() const { return At<int32_t>(device_.data(), logit_rows_at_); }

 private:
  template <typename T>
  static const T* At(const std::byte* block, size_t place) {
    return reinterpret_cast<const T*>(block + place);
  }
  template <typename T>
  T* Host(size_t place) {
    return reinterpret_cast<T*>(host_.data() + place);
  }

  Queue* queue_ = nullptr;
  int64_t max_tokens_ = 0;
  int64_t max_sequences_ = 0;
  size_t long_offsets_at_ = 0, ranks_at_ = 0, offsets_at_ = 0, slots_at_ = 0;
  size_t vocab_ids_at_ = 0, logit_rows_at_ = 0;
  HostArray<std::byte> host_;
  DeviceArray<std::byte> device_;
  int64_t num_sequences_ = 0;
  int64_t num_tokens_ = 0;
  int64_t num_logit_rows_ = 0;
  int64_t longest_ = 0;
  int64_t most_tokens_after_ = 0;
};

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_BATCH_METADATA_H_
