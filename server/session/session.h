// Session: a retained history, the model state that is a function of it, and the exact Forget.
//
// Equation:  after any sequence of Append, AppendGenerated and Forget, Digest() and logits() equal,
//            byte for byte, those of a fresh Session on the same model and options that was given
//            vocab_ids() in one or many calls (contract C1, C2).
// Shapes:    logits [vocab_size] f32.
// Units:     rank: position in the retained history, from 0, closes up after a removal. token_id:
//            stable handle, from 1, never reused in a session. vocab_id: the tokenizer's id.
// Requires:  Commit: a StagedForget of this session (checked by LETHE_CHECK).
// Rejects:   Append: INVALID_ARGUMENT for an empty list or a vocab_id out of range,
//            RESOURCE_EXHAUSTED beyond max_tokens (the message names the remaining budget),
//            INTERNAL for a non-finite activation. Forget: see StageForget.
// Effects:   on error the session is as it was; DATA_LOSS from then on where it cannot be, because the
//            model's numbers leave f32 on its own history. Forgotten vocab_ids, features and snapshots are
//            overwritten before they are freed where this code owns them.
// Numerics:  bit-exact; see ARCHITECTURE.md "Bits". Append O(count), Forget at most 2 (T - r) + 128
//            evaluated or replayed tokens on a history that grew by appends (T its length, r the
//            first removed rank); forget_route.h says which.
// Threads:   compatible. Fork() gives an independent object; the model is shared and immutable.
#ifndef LETHE_SERVER_SESSION_SESSION_H_
#define LETHE_SERVER_SESSION_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/crypto/sha256.h"
#include "audit/state/state_digest.h"
#include "server/model/model.h"
#include "server/model/model_state.h"
#include "server/session/any_session.h"
#include "server/session/forget.h"
#include "server/session/inputs.h"
#include "server/session/snapshot_ladder.h"

namespace lethe {

struct SessionOptions {
  MemoryOverrides memory;  // part of the state digest
  // The most that a bank stores of the inputs for Forget; a cache, no part of the state.
  size_t stored_input_bytes = kDefaultStoredInputBytes;
};

// A boundary state of a session as bytes, for Rebuild.
struct SnapshotBytes {
  int64_t rank = 0;
  int64_t inputs_from = 0;  // the rank of the one that is to be read before it; 0: none
  std::string bytes;
};

// Set in the token_ids that a fork gives out.
inline constexpr uint64_t kForkTokenIdBit = uint64_t{1} << 63;

class Session;

class StagedForget final : public AnyStagedForget {
 public:
  ~StagedForget() override;
  const ForgetResult& result() const override;
  std::vector<SvHead> SvHeads() const override;
  const Inputs& inputs() const override;
  // The model state after the Forget.
  const ModelState& state() const;

 private:
  friend class Session;
  struct Staging;
  explicit StagedForget(std::unique_ptr<Staging> staging);
  std::unique_ptr<Staging> staging_;
};

class Session final : public AnySession {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Create(std::shared_ptr<const Model> model,
                                                         const SessionOptions& options);
  // A session that holds `inputs` already, evaluated here: equal to the one that they were stored from.
  // DATA_LOSS: they cannot be a history of this model.
  static absl::StatusOr<std::unique_ptr<Session>> Rebuild(std::shared_ptr<const Model> model,
                                                          const SessionOptions& options,
                                                          Inputs inputs, uint64_t next_token_id);
  // The same from snapshots of it, by rank, each with those before it: evaluates only what is behind the last. DATA_LOSS
  // too when they are not of such a session.
  static absl::StatusOr<std::unique_ptr<Session>> Resume(std::shared_ptr<const Model> model,
                                                         const SessionOptions& options,
                                                         Inputs inputs, uint64_t next_token_id,
                                                         absl::Span<const std::string> snapshots);
  // Of the snapshots held behind `rank` (0, or that of a snapshot stored before): the last, and before it at distances
  // from the head that double, at most `max_count`; by rank.
  std::vector<SnapshotBytes> SnapshotsBehind(int64_t rank, int max_count) const;
  // Of the last snapshot that SnapshotsBehind could give.
  int64_t resumable_rank() const;
  ~Session() override;

  // Evaluates and retains vocab_ids; returns their token_ids. `kind` is kPrompt or kAppended.
  // `subject` may be empty.
  absl::StatusOr<std::vector<uint64_t>> Append(absl::Span<const int32_t> vocab_ids,
                                               absl::string_view subject, InputKind kind);
  // The same for one token drawn from logits().
  absl::StatusOr<uint64_t> AppendGenerated(int32_t vocab_id, absl::string_view subject = {});

  // Next-token logits after the last retained token; empty when nothing is retained. Valid until
  // the next mutation.
  absl::Span<const float> logits();

  // Logits after each of vocab_ids as if they were appended, [count][vocab_size]; retains nothing
  // (scoring).
  absl::StatusOr<std::vector<float>> Score(absl::Span<const int32_t> vocab_ids) const;

  // What a Forget would do and cost (validate_only), with the errors of StageForget.
  absl::StatusOr<ForgetPlan> PlanForget(const ForgetSelector& selector, DerivedPolicy policy,
                                        std::optional<ForgetWay> way) const override;
  absl::StatusOr<ForgetPlan> PlanForget(const ForgetSelector& selector,
                                        DerivedPolicy policy) const {
    return PlanForget(selector, policy, std::nullopt);
  }

  // Computes the state after the Forget beside the present one, which stays in service until
  // Commit, on the cheaper way or, where it is possible, on `way`. Errors: INVALID_ARGUMENT: not
  // exactly one kind of selector, an empty range or label,
  // policy kUnspecified, nothing before before_token_id; NOT_FOUND: an explicit id (before_token_id
  // included) that is not retained, or a range, label or history that selects nothing;
  // FAILED_PRECONDITION: policy kFail and there are derived tokens; what the checkpoint says.
  // Messages hold no ids and no labels.
  absl::StatusOr<std::unique_ptr<StagedForget>> StageForget(
      const ForgetSelector& selector, DerivedPolicy policy, const Checkpoint& checkpoint = {},
      std::optional<ForgetWay> way = std::nullopt) const;
  // Replaces the state by the staged one; vocab_ids, keys, values, features and snapshots of the old
  // are overwritten, its solver's caches only freed. FAILED_PRECONDITION, and no
  // change, if the session has changed since StageForget.
  absl::StatusOr<ForgetResult> Commit(std::unique_ptr<StagedForget> staged);
  absl::StatusOr<std::unique_ptr<AnyStagedForget>> Stage(const ForgetSelector& selector,
                                                         DerivedPolicy policy,
                                                         const Checkpoint& checkpoint,
                                                         std::optional<ForgetWay> way) override;
  absl::StatusOr<ForgetResult> CommitStaged(std::unique_ptr<AnyStagedForget> staged) override;
  // StageForget and Commit.
  absl::StatusOr<ForgetResult> Forget(const ForgetSelector& selector, DerivedPolicy policy);

  // A deep copy with its own head, for remember = false. Tokens appended to a fork get token_ids
  // with the top bit set (kForkTokenIdBit), which the session itself never gives out; a Forget by
  // ids may be applied to both.
  std::unique_ptr<Session> Fork() const;

  // O(state); keys hashed earlier are not hashed again.
  audit::StateParts StateParts() const override;
  std::vector<SvHead> SvHeads() const override;

  const Model& model() const { return *model_; }
  std::shared_ptr<const Model> shared_model() const { return model_; }
  const SessionOptions& options() const { return options_; }
  const ModelState& state() const { return *state_; }
  const Inputs& inputs() const override { return inputs_; }
  int64_t max_tokens() const;
  std::vector<int32_t> vocab_ids() const;
  uint64_t next_token_id() const { return next_token_id_; }

  // Occurrences of each vocab_id in the retained history, [vocab_size]: what repetition penalties
  // read.
  absl::Span<const int64_t> repetition_counts() const { return repetition_counts_; }

  // Counters since creation (no part of the state): tokens evaluated by Forgets, ranks of the
  // snapshots held.
  int64_t tokens_reevaluated() const { return tokens_reevaluated_; }
  std::vector<int64_t> snapshot_ranks() const override { return ladder_.ranks(); }
  SessionBytes bytes() const override;
  int64_t num_support_vectors() const override;

 private:
  Session(std::shared_ptr<const Model> model, const SessionOptions& options,
          std::unique_ptr<ModelState> state);

  // An empty session takes over the bookkeeping of its history, not evaluated yet.
  absl::Status TakeInputs(Inputs inputs, uint64_t next_token_id);
  absl::Status CheckAppend(absl::Span<const int32_t> vocab_ids, absl::string_view subject) const;
  absl::StatusOr<std::vector<uint64_t>> AppendChecked(absl::Span<const int32_t> vocab_ids,
                                                      absl::string_view subject, InputKind kind);
  void RollBackTo(int64_t rank);
  void InvalidateLogits();

  std::shared_ptr<const Model> model_;
  SessionOptions options_;
  std::unique_ptr<ModelState> state_;
  SnapshotLadder ladder_;
  Inputs inputs_;
  std::vector<int64_t> repetition_counts_;
  std::vector<float> logits_;
  bool logits_valid_ = false;
  absl::Status lost_;  // not OK: the state is none of the history, which is still held
  uint64_t next_token_id_ = 1;
  uint64_t shared_ids_end_ = 0;  // of a fork: next_token_id() of its origin; 0: not a fork
  uint64_t generation_ = 0;      // counts mutations, so that Commit sees a stale StagedForget
  int64_t tokens_reevaluated_ = 0;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_SESSION_H_
