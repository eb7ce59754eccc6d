// DeviceEngine: the owner thread.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "memory/memory.h"
#include "server/device/device_engine.h"
#include "server/error/error_info.h"

namespace lethe {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void DeviceEngine::RunLoop() {
  MutexLock lock(&mutex_);
  while (true) {
    if (!jobs_.empty()) {
      RunJobs();
    } else if (!health_.ok()) {
      FailAll();
      if (options_.on_failure && !is_reported_) {
        is_reported_ = true;
        options_.on_failure(health_);
      }
      if (is_stopping_) return;
      work_.Wait(&mutex_);
    } else if (!requests_.empty()) {
      const Clock::time_point gathered_by =
          last_step_end_ +
          std::min<Clock::duration>(kGatherMax, std::chrono::duration_cast<Clock::duration>(
                                                    kGatherShare * last_step_time_));
      if (IsGathered() || Clock::now() >= gathered_by) {
        Step();
      } else {
        work_.WaitUntil(&mutex_, gathered_by);
      }
    } else {
      if (is_stopping_) return;
      work_.Wait(&mutex_);
    }
  }
}

void DeviceEngine::RunJobs() {
  std::deque<Job*> jobs = std::exchange(jobs_, {});
  for (Job* job : jobs) {
    if (health_.ok()) {
      mutex_.Unlock();
      const absl::Status status = job->work(queue_.get());
      mutex_.Lock();
      job->status = status;
      if (absl::IsInternal(status)) job->status = DeviceFailed(status);
    } else {
      job->status = health_;
    }
    job->is_done = true;
    job->done.SignalAll();
  }
}

absl::Status DeviceEngine::DeviceFailed(const absl::Status& cause) {
  if (health_.ok()) {
    health_ = WithErrorInfo(
        absl::UnavailableError(absl::StrCat("the device has failed: ", cause.message())),
        {"DEVICE_FAILED", {}});
  }
  return health_;
}

void DeviceEngine::FailAll() {
  std::vector<EngineState*> states;
  for (Request* request : requests_) {
    request->status = health_;
    states.push_back(request->state);
  }
  requests_.clear();
  Answer(states);
}

bool DeviceEngine::IsGathered() const {
  size_t num_back = 0;
  for (const Request* request : requests_) num_back += last_decoders_.count(request->state);
  return num_back == last_decoders_.size();
}

std::vector<DeviceEngine::Piece> DeviceEngine::ChoosePieces() {
  std::vector<Piece> pieces;
  int64_t num_decoders = 0;
  int64_t prompt_tokens = options_.max_prompt_tokens;
  int64_t num_prompts = forward_->limits().max_sequences - options_.max_batch;
  for (Request* request : requests_) {
    if (request->left.size() == 1) {
      if (num_decoders == options_.max_batch) continue;
      ++num_decoders;
      pieces.push_back({request, 1});
      continue;
    }
    const int64_t to_boundary = kChunkTokens - request->state->num_tokens_ % kChunkTokens;
    const int64_t count =
        std::min<int64_t>({static_cast<int64_t>(request->left.size()), to_boundary, prompt_tokens});
    if (count == 0 || num_prompts == 0) continue;
    --num_prompts;
    prompt_tokens -= count;
    pieces.push_back({request, static_cast<size_t>(count)});
  }
  return pieces;
}

EngineState* DeviceEngine::VictimBeside(const std::set<const EngineState*>& chosen) const {
  std::set<const EngineState*> waiting;
  for (const Request* request : requests_) waiting.insert(request->state);
  EngineState* victim = nullptr;
  bool victim_waits = false;
  for (EngineState* state : resident_) {
    if (chosen.count(state) != 0) continue;
    const bool waits = waiting.count(state) != 0;
    const bool better = victim == nullptr || (victim_waits && !waits) ||
                        (victim_waits == waits && state->last_step_ < victim->last_step_);
    if (!better) continue;
    victim = state;
    victim_waits = waits;
  }
  return victim;
}

absl::Status DeviceEngine::Unload(EngineState* state) {
  LETHE_ASSIGN_OR_RETURN(state->image_, pool_->CopyToHost(state->slot_));
  return pool_->Free(std::exchange(state->slot_, -1));
}

absl::Status DeviceEngine::MakeSv(EngineState* state) {
  if (!has_sv_groups_ || state->sv_ != nullptr) return absl::OkStatus();
  if (FaultActive(Fault::kDeviceFull)) return absl::ResourceExhaustedError("a fault of the test");
  LETHE_ASSIGN_OR_RETURN(state->sv_, SvSession::Create(device_model_.get(), state->config_));
  return absl::OkStatus();
}

absl::Status DeviceEngine::Load(EngineState* state) {
  LETHE_ASSIGN_OR_RETURN(state->slot_, pool_->Allocate());
  if (state->image_.empty()) return absl::OkStatus();
  LETHE_RETURN_IF_ERROR(pool_->CopyFromHost(state->image_, state->slot_));
  WipeFrom(&state->image_, 0);
  return absl::OkStatus();
}

absl::Status DeviceEngine::GiveSlots(std::vector<Piece>* pieces, std::vector<Request*>* refused) {
  std::set<const EngineState*> chosen;  // and have a slot
  for (const Piece& piece : *pieces) {
    if (piece.request->state->slot_ >= 0) chosen.insert(piece.request->state);
  }
  std::vector<Piece> placed;
  for (const Piece& piece : *pieces) {
    EngineState* state = piece.request->state;
    if (state->slot_ < 0) {
      if (pool_->num_free() == 0) {
        EngineState* victim = VictimBeside(chosen);
        if (victim == nullptr) continue;
        LETHE_RETURN_IF_ERROR(Unload(victim));
        resident_.erase(victim);
        ++counters_.num_spills;
      }
      LETHE_RETURN_IF_ERROR(Load(state));
      resident_.insert(state);
      chosen.insert(state);
    }
    piece.request->status = MakeSv(state);
    if (absl::IsInternal(piece.request->status)) return piece.request->status;
    if (piece.request->status.ok()) {
      placed.push_back(piece);
    } else {
      refused->push_back(piece.request);
    }
  }
  *pieces = std::move(placed);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<absl::Status>> DeviceEngine::Forward(absl::Span<const Piece> pieces) {
  std::vector<ForwardSequence> sequences;
  sequences.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    const Request& request = *piece.request;
    ForwardSequence sequence;
    sequence.slot = request.state->slot_;
    sequence.rank = request.state->num_tokens_;
    sequence.sv = request.state->sv_.get();
    sequence.vocab_ids = request.left.first(piece.count);
    const bool is_last = piece.count == request.left.size();
    if (is_last && !request.logits.empty()) sequence.logits = request.logits.data();
    if (!request.all_logits.empty()) sequence.all_logits = request.all_logits.data();
    sequences.push_back(sequence);
  }
  if (FaultActive(Fault::kDeviceFails)) return absl::InternalError("a fault of the test");
  return forward_->Evaluate(sequences);
}

void DeviceEngine::Answer(absl::Span<EngineState* const> states) {
  mutex_.Unlock();
  {
    MutexLock lock(&answering_);
    for (EngineState* state : states) {
      state->is_answered_.store(1, std::memory_order_release);
      state->is_answered_.notify_one();
    }
  }
  mutex_.Lock();
}

std::vector<EngineState*> DeviceEngine::Conclude(absl::Span<const Piece> pieces,
                                                 absl::Span<const absl::Status> statuses) {
  std::vector<EngineState*> answered;
  std::vector<Request*> going_on;
  last_decoders_.clear();
  for (size_t i = 0; i < pieces.size(); ++i) {
    Request* request = pieces[i].request;
    EngineState* state = request->state;
    const size_t count = pieces[i].count;
    if (count == 1 && request->left.size() == 1) last_decoders_.insert(state);
    state->num_tokens_ += static_cast<int64_t>(count);
    state->last_step_ = static_cast<uint64_t>(counters_.num_steps);
    request->left.remove_prefix(count);
    if (!request->all_logits.empty()) {
      const auto vocab_size = static_cast<size_t>(model().config().vocab_size);
      request->all_logits.remove_prefix(count * vocab_size);
    }
    request->status = statuses[i];
    if (!statuses[i].ok()) {
      state->is_lost_ = true;
      last_decoders_.erase(state);
    }
    request->is_in_step = true;
    if (statuses[i].ok() && !request->left.empty()) {
      going_on.push_back(request);
    } else {
      answered.push_back(state);
    }
  }
  std::erase_if(requests_, [](const Request* request) { return request->is_in_step; });
  // A prompt that goes on stands behind those that wait.
  for (Request* request : going_on) {
    request->is_in_step = false;
    requests_.push_back(request);
  }
  return answered;
}

void DeviceEngine::Refuse(absl::Span<Request* const> refused) {
  std::vector<EngineState*> states;
  for (Request* request : refused) {
    requests_.erase(std::find(requests_.begin(), requests_.end(), request));
    last_decoders_.erase(request->state);
    states.push_back(request->state);
  }
  Answer(states);
}

void DeviceEngine::Step() {
  std::vector<Piece> pieces = ChoosePieces();
  std::vector<Request*> refused;
  if (const absl::Status given = GiveSlots(&pieces, &refused); !given.ok()) {
    static_cast<void>(DeviceFailed(given));
    return;
  }
  if (!refused.empty()) Refuse(refused);  // lets go of the lock
  if (pieces.empty()) return;
  StepRecord record;
  for (const Piece& piece : pieces) {
    const bool decodes = piece.request->left.size() == 1;
    ++(decodes ? record.num_decoders : record.num_prompts);
    if (!decodes) record.num_prompt_tokens += static_cast<int64_t>(piece.count);
  }
  mutex_.Unlock();
  const Clock::time_point start = Clock::now();
  const absl::StatusOr<std::vector<absl::Status>> statuses = Forward(pieces);
  const Clock::time_point end = Clock::now();
  if (observer_ && statuses.ok()) observer_(record);
  mutex_.Lock();
  if (!statuses.ok()) {
    static_cast<void>(DeviceFailed(statuses.status()));
    return;
  }
  last_step_time_ = end - start;
  last_step_end_ = end;
  ++counters_.num_steps;
  counters_.num_decoded += record.num_decoders;
  counters_.num_tokens += record.num_decoders + record.num_prompt_tokens;
  if (record.num_decoders > 0) {
    const auto size = std::lower_bound(kStepSizes.begin(), kStepSizes.end(), record.num_decoders);
    ++counters_.steps_by_decoders[static_cast<size_t>(size - kStepSizes.begin())];
  }
  Answer(Conclude(pieces, *statuses));
}

}  // namespace lethe
