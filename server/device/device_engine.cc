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
  std::shared_ptr<DeviceEngine> engine(new DeviceEngine(options));
  LETHE_RETURN_IF_ERROR(engine->Start(std::move(model)));
  return engine;
}

absl::Status DeviceEngine::Start(std::shared_ptr<const Model> model) {
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

std::unique_ptr<EngineState> DeviceEngine::NewState() {
  return std::unique_ptr<EngineState>(new EngineState(shared_from_this(), SlotImage(), 0));
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

absl::StatusOr<SlotImage> DeviceEngine::Image(const EngineState& state) {
  SlotImage image;
  LETHE_RETURN_IF_ERROR(Run([&](Queue*) -> absl::Status {
    if (state.is_lost_) return StateLost();
    if (state.slot_ < 0) {
      image = state.image_;
      return absl::OkStatus();
    }
    LETHE_ASSIGN_OR_RETURN(image, pool_->CopyToHost(state.slot_));
    return absl::OkStatus();
  }));
  return image;
}

absl::Status DeviceEngine::SetImage(EngineState* state, SlotImage image, int64_t num_tokens) {
  if (image.size() != slot_bytes() || num_tokens <= 0) {
    return absl::InvalidArgumentError("image of another model");
  }
  return Run([&](Queue*) -> absl::Status {
    if (state->slot_ >= 0) {
      LETHE_RETURN_IF_ERROR(pool_->CopyFromHost(image, state->slot_));
      WipeFrom(&image, 0);
    } else {
      state->image_ = std::move(image);
    }
    state->num_tokens_ = num_tokens;
    state->is_lost_ = false;
    return absl::OkStatus();
  });
}

absl::Status DeviceEngine::AppendDigestParts(const EngineState& state, audit::StateParts* parts) {
  return Run([&](Queue*) -> absl::Status {
    if (state.is_lost_) return StateLost();
    if (state.slot_ >= 0) return pool_->AppendDigestParts(state.slot_, state.num_tokens_, parts);
    pool_->AppendDigestParts(state.image_.empty() ? pool_->InitialImage() : state.image_,
                             state.num_tokens_, parts);
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
