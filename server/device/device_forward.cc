#include "server/device/device_forward.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/elementwise/columns.h"
#include "kernels/rms_norm/rms_norm_batch.h"
#include "memory/memory.h"
#include "server/device/batch_metadata.h"
#include "server/device/device_layer.h"
#include "server/device/device_weights.h"
#include "server/device/slot_arrays.h"

namespace lethe {
namespace {

constexpr int64_t kTokensMax = 65536;
constexpr int64_t kSequencesMax = 4096;
constexpr int64_t kElementsMax = (int64_t{1} << 31) - 1;  // of a matrix of activations
constexpr size_t kAlignment = 256;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

absl::Status CheckLimit(const char* name, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " must be in 1 … ", most, ", got ", value));
}

bool HasSvGroups(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers) {
    const auto* memory = std::get_if<MemoryLayerConfig>(&layer);
    if (memory == nullptr) continue;
    for (const GroupConfig& group : memory->groups) {
      if (group.kind == MemoryKind::kSv) return true;
    }
  }
  return false;
}

absl::StatusOr<std::vector<std::unique_ptr<DeviceLayer>>> MakeLayers(const DeviceModel& model,
                                                                     LayerSetup setup) {
  const ModelConfig& config = model.model().config();
  const SlotLayout& layout = setup.arrays->layout();
  std::vector<std::unique_ptr<DeviceLayer>> layers;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const auto& weights = model.layer(i).layer;
    setup.plan->Restart();
    setup.parts = &layout.layers()[i];
    std::unique_ptr<DeviceLayer> layer;
    if (const auto* local = std::get_if<LocalLayerConfig>(&config.layers[i])) {
      LETHE_ASSIGN_OR_RETURN(layer,
                             MakeLocalLayer(setup, *local, std::get<DeviceLocalWeights>(weights)));
    } else if (const auto* memory = std::get_if<MemoryLayerConfig>(&config.layers[i])) {
      LETHE_ASSIGN_OR_RETURN(
          layer, MakeMemoryLayer(setup, *memory, std::get<DeviceMemoryWeights>(weights)));
    } else {
      LETHE_ASSIGN_OR_RETURN(layer, MakeMlpLayer(setup, std::get<DeviceMlpWeights>(weights)));
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace

// The buffers and layers, and one pass of them.
class DeviceForward::Pass {
 public:
  static absl::StatusOr<std::unique_ptr<Pass>> Create(const DeviceModel* model, StatePool* pool,
                                                      const ForwardLimits& limits);

  // Of sequences[i], i in `indexes`, the tokens from done[i] on, counts[i] of them.
  absl::Status Run(absl::Span<const ForwardSequence> sequences, const std::vector<size_t>& indexes,
                   const std::vector<size_t>& done, const std::vector<size_t>& counts,
                   std::vector<absl::Status>* statuses);
  absl::Status Wipe();
  bool cuts_at_chunks() const { return cuts_at_chunks_; }

 private:
  // Where logits go: a row of logits, and where on the host.
  struct Destination {
    size_t sequence;
    float* all_logits;  // or null
    float* logits;      // or null
  };

  explicit Pass(const DeviceModel* model) : model_(model), queue_(model->queue()) {}
  absl::Status Allocate(const ForwardLimits& limits, const BufferPlan& plan);
  absl::Status Layers(absl::Span<SvSession* const> sv);
  absl::Status Logits(int64_t first, int64_t count);
  absl::Status CopyResults(int64_t num_logit_rows);
  void TakeStatuses(const std::vector<size_t>& indexes, const std::vector<size_t>& counts,
                    std::vector<absl::Status>* statuses) const;
  int64_t vocab_size() const { return model_->model().config().vocab_size; }
  int64_t width() const { return model_->model().config().width; }
  uint8_t* is_bad() { return reinterpret_cast<uint8_t*>(results_.data()); }
  float* logits() { return reinterpret_cast<float*>(results_.data() + logits_at_); }

  const DeviceModel* model_;
  Queue* queue_;
  bool cuts_at_chunks_ = false;
  int64_t max_logit_rows_ = 0;
  std::vector<std::unique_ptr<DeviceLayer>> layers_;
  BatchMetadata metadata_;
  DeviceArray<std::byte> activations_;
  DeviceArray<float> x_;
  DeviceArray<float> picked_;  // rows of x whose logits are asked for
  // is_bad, then rows of logits: on the device, and what came back of them.
  DeviceArray<std::byte> results_;
  WipedVector<std::byte> results_on_host_;
  size_t logits_at_ = 0;
};

absl::StatusOr<std::unique_ptr<DeviceForward::Pass>> DeviceForward::Pass::Create(
    const DeviceModel* model, StatePool* pool, const ForwardLimits& limits) {
  const ModelConfig& config = model->model().config();
  std::unique_ptr<Pass> pass(new Pass(model));
  pass->cuts_at_chunks_ = HasSvGroups(config);
  LayerSetup setup;
  setup.queue = model->queue();
  setup.arrays = &pool->arrays();
  setup.width = config.width;
  setup.norm_eps = static_cast<float>(config.norm_eps);
  setup.max_tokens = limits.max_tokens;
  setup.max_sequences = std::min(limits.max_sequences, limits.max_tokens);
  setup.most_tokens = std::max(config.max_tokens, limits.max_tokens);
  BufferPlan needed(nullptr, limits.max_tokens);
  setup.plan = &needed;
  LETHE_RETURN_IF_ERROR(MakeLayers(*model, setup).status());
  LETHE_RETURN_IF_ERROR(CheckLimit("max_tokens", limits.max_tokens,
                                   kElementsMax / std::max(needed.widest(), config.width)));
  LETHE_RETURN_IF_ERROR(pass->Allocate(limits, needed));
  BufferPlan plan(pass->activations_.data(), limits.max_tokens);
  setup.plan = &plan;
  LETHE_ASSIGN_OR_RETURN(pass->layers_, MakeLayers(*model, setup));
  return pass;
}

absl::Status DeviceForward::Pass::Allocate(const ForwardLimits& limits, const BufferPlan& plan) {
  max_logit_rows_ = std::min(limits.max_sequences, limits.max_tokens);
  const auto max_tokens = static_cast<size_t>(limits.max_tokens);
  const auto num_rows = static_cast<size_t>(max_logit_rows_);
  logits_at_ = Aligned(max_tokens);
  const size_t result_bytes =
      logits_at_ + num_rows * static_cast<size_t>(vocab_size()) * sizeof(float);
  LETHE_ASSIGN_OR_RETURN(metadata_,
                         BatchMetadata::Create(queue_, limits.max_tokens, limits.max_sequences));
  LETHE_ASSIGN_OR_RETURN(activations_, DeviceArray<std::byte>::Zeros(queue_, plan.most_bytes()));
  LETHE_ASSIGN_OR_RETURN(
      x_, DeviceArray<float>::Zeros(queue_, max_tokens * static_cast<size_t>(width())));
  LETHE_ASSIGN_OR_RETURN(
      picked_, DeviceArray<float>::Zeros(queue_, num_rows * static_cast<size_t>(width())));
  LETHE_ASSIGN_OR_RETURN(results_, DeviceArray<std::byte>::Zeros(queue_, result_bytes));
  results_on_host_.resize(result_bytes);
  return absl::OkStatus();
}

absl::Status DeviceForward::Pass::Run(absl::Span<const ForwardSequence> sequences,
                                      const std::vector<size_t>& indexes,
                                      const std::vector<size_t>& done,
                                      const std::vector<size_t>& counts,
                                      std::vector<absl::Status>* statuses) {
  std::vector<Destination> destinations;
  std::vector<SvSession*> sv;
  metadata_.Begin();
  for (const size_t i : indexes) {
    const ForwardSequence& sequence = sequences[i];
    const int64_t first_row = metadata_.num_tokens();
    metadata_.Add(sequence.slot, sequence.rank + static_cast<int64_t>(done[i]),
                  sequence.vocab_ids.subspan(done[i], counts[i]));
    sv.push_back(sequence.sv);
    const bool is_last = done[i] + counts[i] == sequence.vocab_ids.size();
    for (size_t t = 0; t < counts[i]; ++t) {
      const bool wants_last = is_last && t + 1 == counts[i] && sequence.logits != nullptr;
      if (sequence.all_logits == nullptr && !wants_last) continue;
      metadata_.AddLogitRow(first_row + static_cast<int64_t>(t));
      const int64_t token = static_cast<int64_t>(done[i] + t);
      destinations.push_back(
          {i, sequence.all_logits == nullptr ? nullptr : sequence.all_logits + token * vocab_size(),
           wants_last ? sequence.logits : nullptr});
    }
  }
  LETHE_RETURN_IF_ERROR(metadata_.Upload());
  LETHE_RETURN_IF_ERROR(Layers(sv));
  const int64_t num_rows = metadata_.num_logit_rows();
  int64_t first = 0;
  do {  // at least once, for is_bad
    const int64_t count = std::min(num_rows - first, max_logit_rows_);
    LETHE_RETURN_IF_ERROR(Logits(first, count));
    LETHE_RETURN_IF_ERROR(CopyResults(count));
    if (first == 0) TakeStatuses(indexes, counts, statuses);
    const auto* rows = reinterpret_cast<const float*>(results_on_host_.data() + logits_at_);
    for (int64_t i = 0; i < count; ++i) {
      const Destination& to = destinations[static_cast<size_t>(first + i)];
      if (!(*statuses)[to.sequence].ok()) continue;
      for (float* logits : {to.all_logits, to.logits}) {
        if (logits != nullptr) std::copy_n(rows + i * vocab_size(), vocab_size(), logits);
      }
    }
    first += count;
  } while (first < num_rows);
  return absl::OkStatus();
}

absl::Status DeviceForward::Pass::Layers(absl::Span<SvSession* const> sv) {
  ForwardBatch batch;
  batch.queue = queue_;
  batch.sequences = metadata_.sequences();
  batch.offsets = metadata_.offsets();
  batch.most_tokens_after = metadata_.most_tokens_after();
  batch.sv = sv;
  batch.x = x_.data();
  batch.is_bad = is_bad();
  const elementwise::Matrix shape = {batch.sequences.num_tokens, width()};
  LETHE_RETURN_IF_ERROR(queue_->SetZero(is_bad(), static_cast<size_t>(shape.num_rows)));
  LETHE_RETURN_IF_ERROR(elementwise::GatherRows(queue_, model_->head().embed.data(),
                                                metadata_.vocab_ids(), shape, x_.data()));
  for (const std::unique_ptr<DeviceLayer>& layer : layers_) {
    LETHE_RETURN_IF_ERROR(layer->Forward(batch));
  }
  return elementwise::MarkNonFinite(queue_, x_.data(), shape, is_bad());
}

absl::Status DeviceForward::Pass::Logits(int64_t first, int64_t count) {
  const DeviceHeadWeights& head = model_->head();
  LETHE_RETURN_IF_ERROR(elementwise::GatherRows(queue_, x_.data(), metadata_.logit_rows() + first,
                                                {count, width()}, picked_.data()));
  LETHE_RETURN_IF_ERROR(RmsNormBatch(queue_, picked_.data(), count, head.final_norm.data(), width(),
                                     static_cast<float>(model_->model().config().norm_eps),
                                     picked_.data()));
  return MatmulBatch(queue_, picked_.data(), count, head.lm_head, kActivationTerms, logits());
}

absl::Status DeviceForward::Pass::CopyResults(int64_t num_logit_rows) {
  const size_t bytes =
      logits_at_ + static_cast<size_t>(num_logit_rows * vocab_size()) * sizeof(float);
  return queue_->CopyToHost(results_.data(), bytes, results_on_host_.data());
}

void DeviceForward::Pass::TakeStatuses(const std::vector<size_t>& indexes,
                                       const std::vector<size_t>& counts,
                                       std::vector<absl::Status>* statuses) const {
  const auto* is_bad = reinterpret_cast<const uint8_t*>(results_on_host_.data());
  for (const size_t i : indexes) {
    if (std::any_of(is_bad, is_bad + counts[i], [](uint8_t bad) { return bad != 0; })) {
      (*statuses)[i] = absl::InternalError("an activation is not finite");
    }
    is_bad += counts[i];
  }
}

absl::Status DeviceForward::Pass::Wipe() {
  LETHE_RETURN_IF_ERROR(metadata_.Wipe());
  if (!activations_.empty()) {
    LETHE_RETURN_IF_ERROR(queue_->SetZero(activations_.data(), activations_.size()));
  }
  LETHE_RETURN_IF_ERROR(queue_->SetZero(x_.data(), x_.size() * sizeof(float)));
  LETHE_RETURN_IF_ERROR(queue_->SetZero(picked_.data(), picked_.size() * sizeof(float)));
  LETHE_RETURN_IF_ERROR(queue_->SetZero(results_.data(), results_.size()));
  explicit_bzero(results_on_host_.data(), results_on_host_.size());
  return queue_->Finish();
}

DeviceForward::DeviceForward(const DeviceModel* model, StatePool* pool, const ForwardLimits& limits)
    : model_(model), pool_(pool), limits_(limits) {}

DeviceForward::~DeviceForward() = default;

absl::StatusOr<std::unique_ptr<DeviceForward>> DeviceForward::Create(const DeviceModel* model,
                                                                     StatePool* pool,
                                                                     const ForwardLimits& limits) {
  LETHE_RETURN_IF_ERROR(CheckLimit("max_tokens", limits.max_tokens, kTokensMax));
  LETHE_RETURN_IF_ERROR(CheckLimit("max_sequences", limits.max_sequences, kSequencesMax));
  std::unique_ptr<DeviceForward> forward(new DeviceForward(model, pool, limits));
  LETHE_ASSIGN_OR_RETURN(forward->pass_, Pass::Create(model, pool, limits));
  return forward;
}

absl::Status DeviceForward::CheckSequences(absl::Span<const ForwardSequence> sequences) const {
  const int64_t vocab_size = model_->model().config().vocab_size;
  int64_t num_tokens = 0;
  std::vector<int32_t> slots;
  for (const ForwardSequence& sequence : sequences) {
    LETHE_CHECK(!sequence.vocab_ids.empty() && sequence.rank >= 0);
    LETHE_CHECK(sequence.slot >= 0 && sequence.slot < pool_->num_slots());
    for (const int32_t vocab_id : sequence.vocab_ids) {
      LETHE_CHECK(vocab_id >= 0 && vocab_id < vocab_size);
    }
    num_tokens += static_cast<int64_t>(sequence.vocab_ids.size());
    slots.push_back(sequence.slot);
  }
  std::sort(slots.begin(), slots.end());
  LETHE_CHECK(std::adjacent_find(slots.begin(), slots.end()) == slots.end());
  LETHE_RETURN_IF_ERROR(
      CheckLimit("sequences of a call", std::ssize(sequences), limits_.max_sequences));
  return CheckLimit("tokens of a call", num_tokens, limits_.max_tokens);
}

absl::StatusOr<std::vector<absl::Status>> DeviceForward::Evaluate(
    absl::Span<const ForwardSequence> sequences) {
  std::vector<absl::Status> statuses(sequences.size());
  if (sequences.empty()) return statuses;
  LETHE_RETURN_IF_ERROR(CheckSequences(sequences));
  std::vector<size_t> by_slot(sequences.size());  // ascending slots are read fastest (docs/gpu.md)
  for (size_t i = 0; i < by_slot.size(); ++i) by_slot[i] = i;
  std::sort(by_slot.begin(), by_slot.end(),
            [&](size_t a, size_t b) { return sequences[a].slot < sequences[b].slot; });
  std::vector<size_t> done(sequences.size());
  std::vector<size_t> counts(sequences.size());
  while (true) {
    std::vector<size_t> indexes;
    for (const size_t i : by_slot) {
      const size_t left = sequences[i].vocab_ids.size() - done[i];
      if (left == 0 || !statuses[i].ok()) continue;
      const auto rank = static_cast<size_t>(sequences[i].rank) + done[i];
      // At a chunk's end support-vector memories solve their gates before the next token is read.
      const size_t chunk_left = kChunkTokens - rank % kChunkTokens;
      counts[i] = pass_->cuts_at_chunks() ? std::min(left, chunk_left) : left;
      indexes.push_back(i);
    }
    if (indexes.empty()) return statuses;
    LETHE_RETURN_IF_ERROR(pass_->Run(sequences, indexes, done, counts, &statuses));
    for (const size_t i : indexes) done[i] += counts[i];
  }
}

absl::Status DeviceForward::Wipe() { return pass_->Wipe(); }

}  // namespace lethe
