#include "server/device/device_forward.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "memory/memory.h"
#include "server/device/forward_pass.h"
#include "server/device/sv_session.h"

namespace lethe {
namespace {

constexpr int64_t kTokensMax = 65536;
constexpr int64_t kSequencesMax = 4096;
constexpr int64_t kThreadsMax = 256;

}  // namespace

DeviceForward::DeviceForward(const DeviceModel* model, StatePool* pool, const ForwardLimits& limits)
    : model_(model), pool_(pool), limits_(limits) {}

DeviceForward::~DeviceForward() = default;

absl::StatusOr<std::unique_ptr<DeviceForward>> DeviceForward::Create(const DeviceModel* model,
                                                                     StatePool* pool,
                                                                     const ForwardLimits& limits) {
  LETHE_RETURN_IF_ERROR(CheckLimit("max_tokens", limits.max_tokens, kTokensMax));
  LETHE_RETURN_IF_ERROR(CheckLimit("max_sequences", limits.max_sequences, kSequencesMax));
  LETHE_RETURN_IF_ERROR(CheckLimit("solver_threads", limits.solver_threads, kThreadsMax));
  std::unique_ptr<DeviceForward> forward(new DeviceForward(model, pool, limits));
  LETHE_ASSIGN_OR_RETURN(forward->pass_, ForwardPass::Create(model, pool, limits));
  return forward;
}

absl::Status DeviceForward::CheckSequences(absl::Span<const ForwardSequence> sequences) const {
  const int64_t vocab_size = model_->model().config().vocab_size;
  int64_t num_tokens = 0;
  std::vector<int32_t> slots;
  for (const ForwardSequence& sequence : sequences) {
    LETHE_CHECK(!sequence.vocab_ids.empty() && sequence.rank >= 0);
    LETHE_CHECK(!pass_->has_sv_groups() ||
                (sequence.sv != nullptr && sequence.sv->num_tokens() == sequence.rank));
    LETHE_CHECK(sequence.slot >= 0 && sequence.slot < pool_->num_slots());
    for (const int32_t vocab_id : sequence.vocab_ids) {
      LETHE_CHECK(vocab_id >= 0 && vocab_id < vocab_size);
    }
    num_tokens += static_cast<int64_t>(sequence.vocab_ids.size());
    slots.push_back(sequence.slot);
  }
  std::sort(slots.begin(), slots.end());
  LETHE_CHECK(std::adjacent_find(slots.begin(), slots.end()) == slots.end());
  LETHE_RETURN_IF_ERROR(CheckLimit("sequences of a call", static_cast<int64_t>(sequences.size()),
                                   limits_.max_sequences));
  return CheckLimit("tokens of a call", num_tokens, limits_.max_tokens);
}

absl::StatusOr<std::vector<absl::Status>> DeviceForward::Evaluate(
    absl::Span<const ForwardSequence> sequences) {
  std::vector<absl::Status> statuses(sequences.size());
  if (sequences.empty()) return statuses;
  LETHE_RETURN_IF_ERROR(CheckSequences(sequences));
  std::vector<size_t> by_slot(sequences.size());  // ascending slots are read fastest (docs/gpu.md)
  std::iota(by_slot.begin(), by_slot.end(), size_t{0});
  std::sort(by_slot.begin(), by_slot.end(),
            [&](size_t a, size_t b) { return sequences[a].slot < sequences[b].slot; });
  std::vector<size_t> taken(sequences.size());
  std::vector<size_t> counts(sequences.size());
  while (true) {
    std::vector<size_t> indexes;
    for (const size_t i : by_slot) {
      const size_t left = sequences[i].vocab_ids.size() - taken[i];
      if (left == 0 || !statuses[i].ok()) continue;
      const auto rank = static_cast<size_t>(sequences[i].rank) + taken[i];
      // At a chunk's end support-vector memories solve their gates before the next token is read.
      const size_t chunk_left = kChunkTokens - rank % kChunkTokens;
      counts[i] = pass_->has_sv_groups() ? std::min(left, chunk_left) : left;
      indexes.push_back(i);
    }
    if (indexes.empty()) return statuses;
    LETHE_RETURN_IF_ERROR(pass_->Run(sequences, indexes, taken, counts, &statuses));
    for (const size_t i : indexes) taken[i] += counts[i];
  }
}

absl::Status DeviceForward::Wipe() { return pass_->Wipe(); }

size_t DeviceForward::num_graphs() const { return pass_->num_graphs(); }

}  // namespace lethe
