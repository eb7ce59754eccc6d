#include "server/device/forward_pass.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "kernels/elementwise/columns.h"
#include "kernels/rms_norm/rms_norm_batch.h"
#include "server/device/device_weights.h"
#include "server/device/slot_arrays.h"

namespace lethe {
namespace {

constexpr int64_t kElementsMax = (int64_t{1} << 31) - 1;  // of a matrix of activations
constexpr size_t kAlignment = 256;
constexpr int64_t kRecordedSequencesMax = 256;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t PowerOfTwo(int64_t least) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(least)));
}

// Of recorded steps: coarse, so that a growing session meets few of them.
int64_t PowerOfFour(int64_t least) {
  int64_t power = 1;
  while (power < least) power *= 4;
  return power;
}

bool HasDictionaries(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers) {
    const auto* memory = std::get_if<MemoryLayerConfig>(&layer);
    if (memory == nullptr) continue;
    for (const GroupConfig& group : memory->groups) {
      if (group.kind == MemoryKind::kOvq) return true;
    }
  }
  return false;
}

absl::StatusOr<std::vector<std::unique_ptr<DeviceLayer>>> MakeLayers(const DeviceModel& model,
                                                                     LayerSetup setup) {
  const ModelConfig& config = model.model().config();
  const SlotLayout& layout = setup.arrays->layout();
  std::vector<std::unique_ptr<DeviceLayer>> layers;
  int64_t num_sv_groups = 0;
  setup.num_sv_groups = &num_sv_groups;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const auto& weights = model.layer(i).layer;
    setup.plan->Restart();
    setup.parts = &layout.layers()[i];
    setup.is_first = i == 0;
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

absl::Status CheckLimit(const char* name, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " must be in 1 … ", most, ", got ", value));
}

absl::StatusOr<std::unique_ptr<ForwardPass>> ForwardPass::Create(const DeviceModel* model,
                                                                 StatePool* pool,
                                                                 const ForwardLimits& limits) {
  const ModelConfig& config = model->model().config();
  std::unique_ptr<ForwardPass> pass(new ForwardPass(model));
  pass->limits_ = limits;
  pass->has_sv_groups_ = HasSvGroups(config);
  pass->has_dictionaries_ = HasDictionaries(config);
  LayerSetup setup;
  setup.queue = model->queue();
  setup.arrays = &pool->arrays();
  setup.width = config.width;
  setup.norm_eps = static_cast<float>(config.norm_eps);
  setup.max_tokens = limits.max_tokens;
  setup.max_sequences = std::min(limits.max_sequences, limits.max_tokens);
  setup.most_tokens = PowerOfFour(std::max(config.max_tokens, limits.max_tokens));
  BufferPlan needed(nullptr, limits.max_tokens);
  setup.plan = &needed;
  LETHE_RETURN_IF_ERROR(MakeLayers(*model, setup).status());
  LETHE_RETURN_IF_ERROR(CheckLimit("max_tokens", limits.max_tokens,
                                   kElementsMax / std::max(needed.widest(), config.width)));
  LETHE_RETURN_IF_ERROR(pass->Allocate(needed));
  BufferPlan plan(pass->activations_.data(), limits.max_tokens);
  setup.plan = &plan;
  LETHE_ASSIGN_OR_RETURN(pass->layers_, MakeLayers(*model, setup));
  LETHE_ASSIGN_OR_RETURN(pass->sv_tables_,
                         SvTables::Create(setup.queue, config, pool->num_slots()));
  return pass;
}

absl::Status ForwardPass::Allocate(const BufferPlan& plan) {
  max_logit_rows_ = std::min(limits_.max_sequences, limits_.max_tokens);
  const auto max_tokens = static_cast<size_t>(limits_.max_tokens);
  const auto num_rows = static_cast<size_t>(max_logit_rows_);
  const auto row = static_cast<size_t>(width());
  logits_at_ = Aligned(max_tokens);
  const size_t result_bytes =
      logits_at_ + num_rows * static_cast<size_t>(vocab_size()) * sizeof(float);
  LETHE_ASSIGN_OR_RETURN(metadata_,
                         BatchMetadata::Create(queue_, limits_.max_tokens, limits_.max_sequences));
  LETHE_ASSIGN_OR_RETURN(activations_, DeviceArray<std::byte>::Zeros(queue_, plan.most_bytes()));
  LETHE_ASSIGN_OR_RETURN(x_, DeviceArray<float>::Zeros(queue_, max_tokens * row));
  LETHE_ASSIGN_OR_RETURN(y_, DeviceArray<float>::Zeros(queue_, max_tokens * row));
  LETHE_ASSIGN_OR_RETURN(picked_, DeviceArray<float>::Zeros(queue_, num_rows * row));
  LETHE_ASSIGN_OR_RETURN(results_, DeviceArray<std::byte>::Zeros(queue_, result_bytes));
  LETHE_ASSIGN_OR_RETURN(results_on_host_, HostArray<std::byte>::Zeros(queue_, result_bytes));
  return absl::OkStatus();
}

absl::Status ForwardPass::Run(absl::Span<const ForwardSequence> sequences,
                              absl::Span<const size_t> indexes, absl::Span<const size_t> taken,
                              absl::Span<const size_t> counts,
                              std::vector<absl::Status>* statuses) {
  TakeMetadata(sequences, indexes, taken, counts);
  if (has_sv_groups_) LETHE_RETURN_IF_ERROR(sv_tables_.Set(slots_, sv_));
  const int64_t num_rows = std::ssize(destinations_);
  const auto num_sequences = static_cast<int64_t>(indexes.size());
  int64_t done = std::min(num_rows, max_logit_rows_);
  const bool is_step = metadata_.num_tokens() == num_sequences;
  if (is_step && limits_.uses_graphs && queue_->kind() == DeviceKind::kCuda &&
      num_sequences <= kRecordedSequencesMax) {
    LETHE_RETURN_IF_ERROR(EnqueueStep());
  } else {
    LETHE_RETURN_IF_ERROR(Enqueue(metadata_.most_tokens_after(), MostDistinct(), done));
  }
  LETHE_RETURN_IF_ERROR(CopyResults(done));
  TakeStatuses(indexes, counts, statuses);
  AdvanceSv(indexes, counts, statuses);
  GiveLogits(0, done, *statuses);
  while (done < num_rows) {
    const int64_t count = std::min(num_rows - done, max_logit_rows_);
    LETHE_RETURN_IF_ERROR(Logits(done, count));
    LETHE_RETURN_IF_ERROR(CopyResults(count));
    GiveLogits(done, count, *statuses);
    done += count;
  }
  return absl::OkStatus();
}

void ForwardPass::TakeMetadata(absl::Span<const ForwardSequence> sequences,
                               absl::Span<const size_t> indexes, absl::Span<const size_t> taken,
                               absl::Span<const size_t> counts) {
  destinations_.clear();
  sv_.clear();
  slots_.clear();
  metadata_.Begin();
  for (const size_t i : indexes) {
    const ForwardSequence& sequence = sequences[i];
    const int64_t first_row = metadata_.num_tokens();
    metadata_.Add(sequence.slot, sequence.rank + static_cast<int64_t>(taken[i]),
                  sequence.vocab_ids.subspan(taken[i], counts[i]));
    sv_.push_back(sequence.sv);
    slots_.push_back(sequence.slot);
    for (size_t t = 0; t < counts[i]; ++t) {
      const size_t token = taken[i] + t;
      const bool is_last = token + 1 == sequence.vocab_ids.size();
      float* last = is_last ? sequence.logits : nullptr;
      if (sequence.all_logits == nullptr && last == nullptr) continue;
      metadata_.AddLogitRow(first_row + static_cast<int64_t>(t));
      float* all = sequence.all_logits;
      if (all != nullptr) all += static_cast<int64_t>(token) * vocab_size();
      destinations_.push_back({i, all, last});
    }
  }
}

int64_t ForwardPass::MostDistinct() const {
  int64_t most = 0;
  for (const SvSession* session : sv_) {
    if (session != nullptr) most = std::max(most, session->most_distinct());
  }
  return PowerOfTwo(std::max<int64_t>(most, 1));
}

absl::Status ForwardPass::Enqueue(int64_t most_tokens_after, int64_t most_distinct,
                                  int64_t num_logit_rows) {
  LETHE_RETURN_IF_ERROR(metadata_.Upload());
  LETHE_RETURN_IF_ERROR(Layers(most_tokens_after, most_distinct));
  return Logits(0, num_logit_rows);
}

// A pass of one token a sequence, in one of a few shapes.
absl::Status ForwardPass::EnqueueStep() {
  const int64_t most = std::min(max_logit_rows_, kRecordedSequencesMax);
  const StepShape shape = {
      std::min(PowerOfTwo(metadata_.num_tokens()), most),
      has_dictionaries_ ? PowerOfFour(metadata_.most_tokens_after()) : 0,
      metadata_.num_logit_rows() > 0,
      MostDistinct(),
  };
  metadata_.Pad(shape.num_sequences);
  const auto enqueue = [&] {
    return Enqueue(shape.most_tokens_after, shape.most_distinct,
                   shape.has_logits ? shape.num_sequences : 0);
  };
  const auto [recorded, is_new] = graphs_.try_emplace(shape);
  // The first time without a record: a kernel is loaded when it is launched for the first time.
  if (is_new) return enqueue();
  if (!recorded->second.has_value()) {
    LETHE_ASSIGN_OR_RETURN(recorded->second, LaunchGraph::Capture(queue_, enqueue));
  }
  return recorded->second->Launch(queue_);
}

absl::Status ForwardPass::Layers(int64_t most_tokens_after, int64_t most_distinct) {
  ForwardBatch batch;
  batch.queue = queue_;
  batch.sequences = metadata_.sequences();
  batch.offsets = metadata_.offsets();
  batch.most_tokens_after = most_tokens_after;
  batch.sv_tables = &sv_tables_;
  batch.most_distinct = most_distinct;
  batch.x = x_.data();
  batch.y = y_.data();
  batch.is_bad = is_bad();
  const elementwise::Matrix shape = {batch.sequences.num_tokens, width()};
  LETHE_RETURN_IF_ERROR(queue_->SetZero(is_bad(), static_cast<size_t>(shape.num_rows)));
  LETHE_RETURN_IF_ERROR(elementwise::GatherRows(queue_, model_->head().embed.data(),
                                                metadata_.vocab_ids(), shape, x_.data()));
  for (const std::unique_ptr<DeviceLayer>& layer : layers_) {
    LETHE_RETURN_IF_ERROR(layer->Forward(batch));
  }
  LETHE_RETURN_IF_ERROR(elementwise::Add(queue_, y_.data(), shape.size(), x_.data()));
  return elementwise::MarkNonFinite(queue_, x_.data(), shape, is_bad());
}

absl::Status ForwardPass::Logits(int64_t first, int64_t count) {
  const DeviceHeadWeights& head = model_->head();
  LETHE_RETURN_IF_ERROR(elementwise::GatherRows(queue_, x_.data(), metadata_.logit_rows() + first,
                                                {count, width()}, picked_.data()));
  LETHE_RETURN_IF_ERROR(RmsNormBatch(queue_, picked_.data(), count, head.final_norm.data(), width(),
                                     static_cast<float>(model_->model().config().norm_eps),
                                     picked_.data()));
  return MatmulBatch(queue_, picked_.data(), count, head.lm_head, kActivationTerms, logits());
}

absl::Status ForwardPass::CopyResults(int64_t num_logit_rows) {
  const size_t bytes =
      logits_at_ + static_cast<size_t>(num_logit_rows * vocab_size()) * sizeof(float);
  return queue_->CopyToHost(results_.data(), bytes, results_on_host_.data());
}

void ForwardPass::TakeStatuses(absl::Span<const size_t> indexes, absl::Span<const size_t> counts,
                               std::vector<absl::Status>* statuses) const {
  const auto* is_bad = reinterpret_cast<const uint8_t*>(results_on_host_.data());
  for (const size_t i : indexes) {
    if (std::any_of(is_bad, is_bad + counts[i], [](uint8_t bad) { return bad != 0; })) {
      (*statuses)[i] = absl::InternalError("an activation is not finite");
    }
    is_bad += counts[i];
  }
}

// The tails have the pass's tokens; at a boundary the next token is read through new gates.
void ForwardPass::AdvanceSv(absl::Span<const size_t> indexes, absl::Span<const size_t> counts,
                            std::vector<absl::Status>* statuses) const {
  if (!has_sv_groups_) return;
  std::vector<SvSession*> sessions;
  std::vector<size_t> of_sessions;
  for (size_t n = 0; n < indexes.size(); ++n) {
    if (!(*statuses)[indexes[n]].ok()) continue;
    sv_[n]->Take(static_cast<int64_t>(counts[indexes[n]]));
    sessions.push_back(sv_[n]);
    of_sessions.push_back(indexes[n]);
  }
  const std::vector<absl::Status> advanced = AdvanceSvSessions(sessions, limits_.solver_threads);
  for (size_t n = 0; n < advanced.size(); ++n) (*statuses)[of_sessions[n]] = advanced[n];
}

void ForwardPass::GiveLogits(int64_t first, int64_t count,
                             const std::vector<absl::Status>& statuses) const {
  const auto* rows = reinterpret_cast<const float*>(results_on_host_.data() + logits_at_);
  for (int64_t i = 0; i < count; ++i) {
    const Destination& to = destinations_[static_cast<size_t>(first + i)];
    if (!statuses[to.sequence].ok()) continue;
    for (float* logits : {to.all_logits, to.logits}) {
      if (logits != nullptr) std::copy_n(rows + i * vocab_size(), vocab_size(), logits);
    }
  }
}

absl::Status ForwardPass::Wipe() {
  if (FaultActive(Fault::kFreedMemoryKept)) return absl::OkStatus();
  LETHE_RETURN_IF_ERROR(queue_->Finish());
  LETHE_RETURN_IF_ERROR(metadata_.Wipe());
  if (!activations_.empty()) {
    LETHE_RETURN_IF_ERROR(queue_->SetZero(activations_.data(), activations_.size()));
  }
  LETHE_RETURN_IF_ERROR(queue_->SetZero(x_.data(), x_.size() * sizeof(float)));
  LETHE_RETURN_IF_ERROR(queue_->SetZero(y_.data(), y_.size() * sizeof(float)));
  LETHE_RETURN_IF_ERROR(queue_->SetZero(picked_.data(), picked_.size() * sizeof(float)));
  LETHE_RETURN_IF_ERROR(queue_->SetZero(results_.data(), results_.size()));
  explicit_bzero(results_on_host_.data(), results_on_host_.size());
  return queue_->Finish();
}

size_t ForwardPass::num_graphs() const {
  return static_cast<size_t>(std::count_if(
      graphs_.begin(), graphs_.end(), [](const auto& graph) { return graph.second.has_value(); }));
}

}  // namespace lethe
