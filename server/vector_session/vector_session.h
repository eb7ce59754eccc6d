// VectorSession: a support-vector memory over the caller's own keys and values, without a model.
//
// Equation:  a is the canonical solution (memory/svdd/problem.h) of all retained keys, after every
//            change. Read at q, sums over the support (a_i > 0):
//              decision f(q) = rho - 1 + 2 sum alpha_i kappa(q, x_i), alpha = a/m, >= 0 inside;
//              readout  o(q) = sum a_i w_i v_i / sum a_i w_i, w_i = exp(t_min - t_i), t_i = |q -
//                x_i|^2 / sigma^2, t_min the smallest of the support: kappa up to a factor that cancels
//                and never underflows.
// Shapes:    keys, queries [count][key_dim], values [count][value_dim], row-major f64; value_dim may
//            be 0.
// Units:     ranks and token_ids as in server/session/session.h.
// Requires:  params from svdd::MakeParams.
// Rejects:   Append: INVALID_ARGUMENT naming keys or values: no row, a size that is no multiple, other
//            counts, a component that is not finite or beyond 2^400, a long subject;
//            RESOURCE_EXHAUSTED beyond max_inputs (the message names what is left);
//            FAILED_PRECONDITION when n u_kappa > ridge/2. Read: INVALID_ARGUMENT likewise,
//            FAILED_PRECONDITION when nothing is retained. StageEviction: FAILED_PRECONDITION when
//            the options do not allow it or there is no reserve. Stage: any_session.h.
// Effects:   on error nothing changed. Stage and StageEviction change the memory at once, and take
//            the change back, by solving again from nothing, if what they return is destroyed without
//            Commit. Forgotten keys and values are overwritten.
// Numerics:  the state is a function of the retained keys and values, their order and the options: not
//            of how they were cut into calls or what came and went. Read: support in rank order,
//            components in fma chains. Append and Forget as IncrementalSolver, and O(n) to move what
//            lies behind a removed row; way kReevaluation solves from nothing. Read O(|S u E| (d + v)).
// Threads:   compatible.
#ifndef LETHE_SERVER_VECTOR_SESSION_VECTOR_SESSION_H_
#define LETHE_SERVER_VECTOR_SESSION_VECTOR_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/state/input_tree.h"
#include "kernels/base/wiped.h"
#include "memory/svdd/incremental.h"
#include "server/session/any_session.h"
#include "server/vector_session/support_rows.h"

namespace lethe {

struct VectorOptions {
  svdd::Params params;     // fixed at creation, none of them taken from the session's inputs
  int64_t value_dim = 0;   // 0: keys alone
  bool selection = false;  // reserve keys may be evicted
  int64_t max_inputs = 65'536;
};

// What stands for the model in digests and statements.
audit::Sha256Digest ModelDigest(const VectorOptions& options);

struct VectorReads {
  std::vector<double> readouts;   // [count][value_dim]
  std::vector<double> decisions;  // [count]
};

// What a vector session is rebuilt from.
struct StoredVectors {
  Inputs inputs;
  WipedVector<double> keys;
  WipedVector<double> values;
  uint64_t next_token_id = 1;
  uint64_t epoch = 0;
  bool selected = false;
};

class VectorSession final : public AnySession {
 public:
  explicit VectorSession(const VectorOptions& options);
  // A session that holds `stored` already, solved here: equal to the one that it was stored from.
  // DATA_LOSS: these cannot be its inputs.
  static absl::StatusOr<std::unique_ptr<VectorSession>> Rebuild(const VectorOptions& options,
                                                                StoredVectors stored);
  ~VectorSession() override;

  absl::StatusOr<TokenIdRange> Append(absl::Span<const double> keys,
                                      absl::Span<const double> values, absl::string_view subject);
  absl::StatusOr<VectorReads> Read(absl::Span<const double> queries);

  const Inputs& inputs() const override { return inputs_; }
  audit::StateParts StateParts() const override;
  std::vector<SvHead> SvHeads() const override;
  absl::StatusOr<ForgetPlan> PlanForget(const ForgetSelector& selector, DerivedPolicy policy,
                                        std::optional<ForgetWay> way) const override;
  absl::StatusOr<std::unique_ptr<AnyStagedForget>> Stage(const ForgetSelector& selector,
                                                         DerivedPolicy policy,
                                                         const Checkpoint& checkpoint,
                                                         std::optional<ForgetWay> way) override;
  // FAILED_PRECONDITION when the options do not allow StageEviction.
  absl::Status CheckSelection() const;
  // The removal of every reserve key: reads stay, bit for bit, what they are.
  absl::StatusOr<std::unique_ptr<AnyStagedForget>> StageEviction();
  absl::StatusOr<ForgetResult> CommitStaged(std::unique_ptr<AnyStagedForget> staged) override;
  SessionBytes bytes() const override;
  std::vector<int64_t> snapshot_ranks() const override { return {}; }
  int64_t num_support_vectors() const override;

  const VectorOptions& options() const { return options_; }
  absl::Span<const double> keys() const { return keys_; }
  absl::Span<const double> values() const { return values_; }
  absl::Span<const double> KeyOf(int64_t rank) const;
  absl::Span<const double> ValueOf(int64_t rank) const;
  // Changes so far. A selection certificate holds for one.
  uint64_t epoch() const { return epoch_; }
  uint64_t next_token_id() const { return next_token_id_; }
  // True once a selection was made: what was evicted then is not in the state any more.
  bool selected() const { return selected_; }
  // Solves that took the slow canonical way (canonical.h: fallbacks). No part of the state.
  int64_t slow_solves() const { return slow_solves_before_ + solver_->counters().fallbacks; }

 private:
  class StagedRemoval;
  // What a removal took out.
  struct Removed;

  absl::Status CheckAppend(absl::Span<const double> keys, absl::Span<const double> values,
                           absl::string_view subject) const;
  absl::StatusOr<std::unique_ptr<AnyStagedForget>> StageRemoval(std::vector<int64_t> ranks,
                                                                ForgetWay way, bool eviction);
  absl::Status RemoveKeys(absl::Span<const int64_t> ranks, ForgetWay way);
  void PutBack(const Removed& removed);
  // A solver of keys_ that knows nothing else.
  void SolveAgain();
  void HashLeavesFrom(int64_t rank);
  void EraseLeaves(absl::Span<const int64_t> ranks);
  const VectorOptions options_;
  std::unique_ptr<svdd::IncrementalSolver> solver_;  // its solution() is not const
  int64_t slow_solves_before_ = 0;                   // of solvers that are gone
  WipedVector<double> keys_;
  WipedVector<double> values_;
  audit::InputTree tree_;
  Inputs inputs_;
  SupportRows support_;  // for reads
  uint64_t next_token_id_ = 1;
  uint64_t epoch_ = 0;
  bool selected_ = false;
  bool staged_ = false;
};

}  // namespace lethe

#endif  // LETHE_SERVER_VECTOR_SESSION_VECTOR_SESSION_H_
