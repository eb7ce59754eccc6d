// DeviceEngine, EngineState: sessions of one model on one device, evaluated together (continuous batching).
//
// Equation:  device_forward.h. A step takes one token of every waiting decoder, at most max_batch of them, and
//            at most max_prompt_tokens of those who have more: each such prompt in turn a piece that ends at its
//            next rank 64j, so a long prompt starves neither decoders nor short prompts.
// Shapes:    logits: empty or [vocab_size], after the last token; all_logits: empty or [count][vocab_size]; f32.
// Units:     tokens; bytes.
// Requires:  one call at a time for an EngineState, which is not destroyed meanwhile; vocab_ids in
//            [0, vocab_size).
// Rejects:   Create: what DeviceModel, StatePool and DeviceForward reject, INVALID_ARGUMENT that names the option and its
//            range. Evaluate: INTERNAL when an activation is not finite: then only Restore or destruction may follow;
//            FAILED_PRECONDITION, reason STATE_LOST, until then. RESOURCE_EXHAUSTED: no room for an sv group's support. Everything: UNAVAILABLE, reason DEVICE_FAILED, once the
//            device has failed; nothing on it is of any use then, histories are.
// Effects:   Evaluate blocks until the tokens are in. A state takes a slot of the pool when it evaluates; when none is
//            free, that which was used longest ago moves to the host (a spill) and comes back when it is used.
//            A step waits for those that decoded in the last one until all are back, at most kGatherShare of that
//            step's time and kGatherMax. Slots are zeroed as they are given back, images when they are dropped.
// Numerics:  a state's bits are a function of its tokens alone.
// Threads:   safe. One thread owns the device: queue, pool and forward are touched by it alone. An EngineState keeps
//            its engine.
#ifndef LETHE_SERVER_DEVICE_DEVICE_ENGINE_H_
#define LETHE_SERVER_DEVICE_DEVICE_ENGINE_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "audit/state/state_digest.h"
#include "kernels/base/mutex.h"
#include "kernels/base/queue.h"
#include "server/device/device_forward.h"
#include "server/device/device_model.h"
#include "server/device/state_pool.h"
#include "server/device/sv_session.h"

namespace lethe {

class DeviceEngine;

// A session's state on the host, to go back to.
struct EngineSnapshot {
  int64_t num_tokens = 0;
  SlotImage image;         // empty at rank 0
  SvSession::Snapshot sv;  // of a model with sv groups: the gates; the keys stay in the state
};

struct EngineOptions {
  DeviceKind device = DeviceKind::kCpu;
  int32_t num_slots = 64;           // 1 ... 65536
  int64_t max_batch = 256;          // 1 ... 4096 decoders a step
  int64_t max_prompt_tokens = 512;  // 64 ... 32768 of a step
  int64_t solver_threads = 1;       // 1 ... 256, that solve the gates of sv groups
  // Called once, by the owner thread, when the device has failed and those who waited know.
  std::function<void(const absl::Status&)> on_failure;
};

// A session's streaming state: in a slot or an image on the host.
class EngineState {
 public:
  ~EngineState();
  EngineState(const EngineState&) = delete;
  EngineState& operator=(const EngineState&) = delete;
  int64_t num_tokens() const { return num_tokens_; }

 private:
  friend class DeviceEngine;
  EngineState(std::shared_ptr<DeviceEngine> engine, std::shared_ptr<const ModelConfig> config)
      : engine_(std::move(engine)), config_(std::move(config)) {}

  const std::shared_ptr<DeviceEngine> engine_;
  const std::shared_ptr<const ModelConfig> config_;  // the model's, its sv options perhaps others
  // Everything below is the owner thread's while a call or a job runs, and nobody's else.
  int32_t slot_ = -1;  // -1: none; then image_ is the state, empty at rank 0
  SlotImage image_;
  std::unique_ptr<SvSession> sv_;  // null: no sv groups, or no token yet
  int64_t num_tokens_ = 0;
  uint64_t last_step_ = 0;
  bool is_lost_ = false;
  // 1: the call that waits has its answer. Here, since a state outlives the owner thread's look at it.
  std::atomic<uint32_t> is_answered_{0};
};

// What a step took, for metrics and tests.
struct StepRecord {
  int64_t num_decoders = 0;
  int64_t num_prompts = 0;
  int64_t num_prompt_tokens = 0;
};

class DeviceEngine : public std::enable_shared_from_this<DeviceEngine> {
 public:
  static constexpr double kGatherShare = 0.2;
  static constexpr std::chrono::microseconds kGatherMax{500};
  // Upper bounds of the histogram of decoders a step; one more for all.
  static constexpr std::array<int64_t, 9> kStepSizes = {1, 2, 4, 8, 16, 32, 64, 128, 256};

  struct Counters {
    int64_t num_steps = 0;
    int64_t num_tokens = 0;
    int64_t num_spills = 0;
    int64_t slots_in_use = 0;
    std::array<int64_t, kStepSizes.size() + 1> steps_by_decoders{};
    int64_t num_decoded = 0;
  };

  static absl::StatusOr<std::shared_ptr<DeviceEngine>> Create(std::shared_ptr<const Model> model,
                                                              const EngineOptions& options);
  ~DeviceEngine();
  DeviceEngine(const DeviceEngine&) = delete;
  DeviceEngine& operator=(const DeviceEngine&) = delete;

  // At rank 0. `config`: the model's, its sv options perhaps others.
  std::unique_ptr<EngineState> NewState(std::shared_ptr<const ModelConfig> config);
  std::unique_ptr<EngineState> NewState() { return NewState(model_config_); }
  // That says STATE_LOST.
  std::unique_ptr<EngineState> LostState();

  absl::Status Evaluate(EngineState* state, absl::Span<const int32_t> vocab_ids,
                        absl::Span<float> logits, absl::Span<float> all_logits);
  absl::StatusOr<EngineSnapshot> Snapshot(EngineState* state);
  // A snapshot of the state or of one that it was cloned from, or of another without sv groups. INVALID_ARGUMENT for an
  // image of another size.
  absl::Status Restore(const EngineSnapshot& snapshot, EngineState* state);
  // Into `clone`, new and of the same configuration.
  absl::Status Clone(EngineState* state, EngineState* clone);
  // As StatePool's.
  absl::Status AppendDigestParts(EngineState* state, audit::StateParts* parts);
  // The state's sv groups with all its tokens, null without any; until its next call.
  absl::StatusOr<const SvSession*> SyncedSv(EngineState* state);
  // Overwrites what past steps left in activations, workspaces and the host's copies.
  absl::Status Wipe();
  // Work for the owner thread, between steps.
  absl::Status Run(absl::FunctionRef<absl::Status(Queue*)> work);

  absl::Status health() const;
  Counters counters() const;
  const EngineOptions& options() const { return options_; }
  const Model& model() const { return device_model_->model(); }
  size_t slot_bytes() const { return device_model_->slot_bytes(); }

  // Called by the owner thread after each step. Before the first call.
  void ObserveSteps(std::function<void(const StepRecord&)> observer) {
    observer_ = std::move(observer);
  }

 private:
  friend class EngineState;
  // Of a caller, on its stack; guarded by mutex_ but for what a step reads while it is chosen.
  struct Request {
    EngineState* state = nullptr;
    absl::Span<const int32_t> left;
    absl::Span<float> logits;
    absl::Span<float> all_logits;
    absl::Status status;
    bool is_in_step = false;
  };
  struct Job {
    absl::FunctionRef<absl::Status(Queue*)> work;
    absl::Status status;
    bool is_done = false;
    CondVar done;
  };
  // A request's tokens of one step.
  struct Piece {
    Request* request = nullptr;
    size_t count = 0;
  };

  explicit DeviceEngine(const EngineOptions& options) : options_(options) {}
  absl::Status Start(std::shared_ptr<const Model> model);
  void Release(EngineState* state);
  absl::Status DeviceFailed(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void RunLoop();
  void RunJobs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsGathered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Piece> ChoosePieces() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those that got no slot drop out; those that the device has no room for are refused, with their status. An error is the
  // device's.
  absl::Status GiveSlots(std::vector<Piece>* pieces, std::vector<Request*>* refused)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(absl::Span<Request* const> refused) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  EngineState* VictimBeside(const std::set<const EngineState*>& chosen) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeSv(EngineState* state);
  absl::StatusOr<SlotImage> ImageOf(const EngineState& state) const;
  absl::Status SetImage(SlotImage image, EngineState* state);
  absl::Status Load(EngineState* state);
  absl::Status Unload(EngineState* state);
  absl::StatusOr<std::vector<absl::Status>> Forward(absl::Span<const Piece> pieces);
  // Of the requests that it took, those that are over.
  std::vector<EngineState*> Conclude(absl::Span<const Piece> pieces,
                                     absl::Span<const absl::Status> statuses)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(absl::Span<EngineState* const> states) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Step() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const EngineOptions options_;
  std::shared_ptr<const ModelConfig> model_config_;
  bool has_sv_groups_ = false;
  // The owner thread's, made and destroyed by it too; these two are read by all once they are there.
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<DeviceModel> device_model_;
  std::unique_ptr<StatePool> pool_;
  std::unique_ptr<DeviceForward> forward_;
  std::function<void(const StepRecord&)> observer_;

  // Held while the owner thread looks at states that may be destroyed once they have their answer.
  Mutex answering_;
  mutable Mutex mutex_;
  CondVar work_;  // for the owner thread
  std::deque<Request*> requests_ ABSL_GUARDED_BY(mutex_);
  std::deque<Job*> jobs_ ABSL_GUARDED_BY(mutex_);
  std::set<EngineState*> resident_ ABSL_GUARDED_BY(mutex_);  // that have a slot
  std::set<const EngineState*> last_decoders_ ABSL_GUARDED_BY(mutex_);
  std::chrono::steady_clock::duration last_step_time_ ABSL_GUARDED_BY(mutex_){};
  std::chrono::steady_clock::time_point last_step_end_ ABSL_GUARDED_BY(mutex_){};
  absl::Status health_ ABSL_GUARDED_BY(mutex_);
  Counters counters_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_reported_ ABSL_GUARDED_BY(mutex_) = false;  // on_failure was called
  std::thread owner_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_DEVICE_ENGINE_H_
