#include "server/device/device_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "memory/memory.h"
#include "server/error/error_info.h"

namespace lethe {
namespace {

absl::Status CheckOption(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": want ", least, " to ", most, ", got ", value));
}

// Short prompts of one step are at most as many as are so long on average.
constexpr int64_t kTokensPerPrompt = 16;

absl::Status StateLost() {
  return WithErrorInfo(absl::FailedPreconditionError("the session's state on the device is lost"),
                       {"STATE_LOST", {}});
}

}  // namespace

EngineState::~EngineState() { engine_->Release(this); }

absl::StatusOr<std::shared_ptr<DeviceEngine>> DeviceEngine::Create(
    std::shared_ptr<const Model> model, const EngineOptions& options) {
  LETHE_RETURN_IF_ERROR(CheckOption("device slots", options.num_slots, 1, 65'536));
  LETHE_RETURN_IF_ERROR(CheckOption("device batch", options.max_batch, 1, 4'096));
  LETHE_RETURN_IF_ERROR(
      CheckOption("device prompt tokens", options.max_prompt_tokens, kChunkTokens, 32'768));
  LETHE_RETURN_IF_ERROR(CheckOption("solver threads", options.solver_threads, 1, 256));
  std::shared_ptr<DeviceEngine> engine(new DeviceEngine(options));
  LETHE_RETURN_IF_ERROR(engine->Start(std::move(model)));
  return engine;
}

absl::Status DeviceEngine::Start(std::shared_ptr<const Model> model) {
  model_config_ = std::make_shared<const ModelConfig>(model->config());
  has_sv_groups_ = HasSvGroups(*model_config_);
  absl::Status made;
  bool is_made = false;
  CondVar made_changed;
  MutexLock lock(&mutex_);
  owner_ = std::thread([&, this] {
    const absl::Status status = [&]() -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(queue_, Queue::Create(options_.device));
      LETHE_ASSIGN_OR_RETURN(device_model_, DeviceModel::Create(queue_.get(), std::move(model)));
      LETHE_ASSIGN_OR_RETURN(pool_, StatePool::Create(device_model_.get(), options_.num_slots));
      ForwardLimits limits;
      limits.max_sequences = options_.max_batch + options_.max_prompt_tokens / kTokensPerPrompt;
      limits.max_tokens = options_.max_batch + options_.max_prompt_tokens;
      limits.solver_threads = options_.solver_threads;
      LETHE_ASSIGN_OR_RETURN(forward_,
                             DeviceForward::Create(device_model_.get(), pool_.get(), limits));
      return absl::OkStatus();
    }();
    {
      MutexLock start_lock(&mutex_);
      made = status;
      is_made = true;
      made_changed.SignalAll();
    }
    if (status.ok()) RunLoop();
    forward_.reset();
    pool_.reset();
    device_model_.reset();
    queue_.reset();
  });
  while (!is_made) made_changed.Wait(&mutex_);
  return made;
}

DeviceEngine::~DeviceEngine() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
    work_.SignalAll();
  }
  if (owner_.joinable()) owner_.join();
}

std::unique_ptr<EngineState> DeviceEngine::NewState(std::shared_ptr<const ModelConfig> config) {
  return std::unique_ptr<EngineState>(new EngineState(shared_from_this(), std::move(config)));
}

std::unique_ptr<EngineState> DeviceEngine::LostState() {
  std::unique_ptr<EngineState> state = NewState();
  state->is_lost_ = true;
  return state;
}

absl::Status DeviceEngine::Evaluate(EngineState* state, absl::Span<const int32_t> vocab_ids,
                                    absl::Span<float> logits, absl::Span<float> all_logits) {
  if (vocab_ids.empty()) return absl::OkStatus();
  Request request;
  request.state = state;
  request.left = vocab_ids;
  request.logits = logits;
  request.all_logits = all_logits;
  {
    MutexLock lock(&mutex_);
    LETHE_RETURN_IF_ERROR(health_);
    if (state->is_lost_) return StateLost();
    state->is_answered_.store(0, std::memory_order_relaxed);
    requests_.push_back(&request);
    work_.SignalAll();
  }
  // Not under the mutex, which a whole batch of callers would queue for.
  state->is_answered_.wait(0, std::memory_order_acquire);
  return request.status;
}

absl::Status DeviceEngine::Run(absl::FunctionRef<absl::Status(Queue*)> work) {
  Job job{work, absl::OkStatus(), false, CondVar()};
  MutexLock lock(&mutex_);
  LETHE_RETURN_IF_ERROR(health_);
  jobs_.push_back(&job);
  work_.SignalAll();
  while (!job.is_done) job.done.Wait(&mutex_);
  return job.status;
}

absl::StatusOr<SlotImage> DeviceEngine::ImageOf(const EngineState& state) const {
  if (state.slot_ < 0) return state.image_;
  return pool_->CopyToHost(state.slot_);
}

absl::Status DeviceEngine::SetImage(SlotImage image, EngineState* state) {
  if (state->slot_ >= 0) {
    return pool_->CopyFromHost(image.empty() ? pool_->InitialImage() : image, state->slot_);
  }
  WipeFrom(&state->image_, 0);
  state->image_ = std::move(image);
  return absl::OkStatus();
}

absl::StatusOr<EngineSnapshot> DeviceEngine::Snapshot(EngineState* state) {
  EngineSnapshot snapshot;
  const absl::Status taken = Run([&](Queue*) -> absl::Status {
    if (state->is_lost_) return StateLost();
    snapshot.num_tokens = state->num_tokens_;
    if (state->num_tokens_ == 0) return absl::OkStatus();
    LETHE_ASSIGN_OR_RETURN(snapshot.image, ImageOf(*state));
    if (state->sv_ == nullptr) return absl::OkStatus();
    LETHE_ASSIGN_OR_RETURN(snapshot.sv, state->sv_->TakeSnapshot());
    return absl::OkStatus();
  });
  LETHE_RETURN_IF_ERROR(taken);
  return snapshot;
}

absl::Status DeviceEngine::Restore(const EngineSnapshot& snapshot, EngineState* state) {
  if (snapshot.num_tokens > 0 && snapshot.image.size() != slot_bytes()) {
    return absl::InvalidArgumentError("snapshot of another model");
  }
  return Run([&](Queue*) -> absl::Status {
    LETHE_RETURN_IF_ERROR(SetImage(snapshot.image, state));
    if (snapshot.num_tokens == 0) {
      state->sv_.reset();
    } else if (has_sv_groups_) {
      if (state->sv_ == nullptr) return StateLost();
      LETHE_RETURN_IF_ERROR(state->sv_->Restore(snapshot.sv));
    }
    state->num_tokens_ = snapshot.num_tokens;
    state->is_lost_ = false;
    return absl::OkStatus();
  });
}

absl::Status DeviceEngine::Clone(EngineState* state, EngineState* clone) {
  return Run([&](Queue*) -> absl::Status {
    if (state->is_lost_) return StateLost();
    LETHE_ASSIGN_OR_RETURN(clone->image_, ImageOf(*state));
    if (state->sv_ != nullptr) {
      LETHE_ASSIGN_OR_RETURN(clone->sv_, state->sv_->Clone());
    }
    clone->num_tokens_ = state->num_tokens_;
    return absl::OkStatus();
  });
}

absl::StatusOr<const SvSession*> DeviceEngine::SyncedSv(EngineState* state) {
  const SvSession* sv = nullptr;
  const absl::Status synced = Run([&](Queue*) -> absl::Status {
    if (state->is_lost_) return StateLost();
    LETHE_RETURN_IF_ERROR(MakeSv(state));
    if (state->sv_ != nullptr) LETHE_RETURN_IF_ERROR(state->sv_->Sync());
    sv = state->sv_.get();
    return absl::OkStatus();
  });
  LETHE_RETURN_IF_ERROR(synced);
  return sv;
}

absl::Status DeviceEngine::AppendDigestParts(EngineState* state, audit::StateParts* parts) {
  LETHE_ASSIGN_OR_RETURN(const SvSession* sv, SyncedSv(state));
  return Run([&](Queue*) -> absl::Status {
    if (state->slot_ >= 0) {
      return pool_->AppendDigestParts(state->slot_, state->num_tokens_, parts, sv);
    }
    pool_->AppendDigestParts(state->image_.empty() ? pool_->InitialImage() : state->image_,
                             state->num_tokens_, parts, sv);
    return absl::OkStatus();
  });
}

absl::Status DeviceEngine::Wipe() {
  return Run([this](Queue*) { return forward_->Wipe(); });
}

absl::Status DeviceEngine::health() const {
  MutexLock lock(&mutex_);
  return health_;
}

DeviceEngine::Counters DeviceEngine::counters() const {
  MutexLock lock(&mutex_);
  Counters counters = counters_;
  counters.slots_in_use = static_cast<int64_t>(resident_.size());
  return counters;
}

void DeviceEngine::Release(EngineState* state) {
  { MutexLock lock(&answering_); }
  // Once the device has failed its memory is nobody's until the process ends.
  static_cast<void>(Run([&](Queue*) -> absl::Status {
    state->sv_.reset();
    if (state->slot_ < 0) return absl::OkStatus();
    const int32_t slot = std::exchange(state->slot_, -1);
    return pool_->Free(slot);
  }));
  MutexLock lock(&mutex_);
  resident_.erase(state);
  last_decoders_.erase(state);
  work_.SignalAll();
}

}  // namespace lethe
