// AnySession, AnyStagedForget: what registry and certification need of a session, whether it holds a
// model's tokens (session.h) or a caller's vectors (server/vector_session).
//
// Equation:  after any sequence of inputs and Forgets StateParts() equals, byte for byte, that of a
//            fresh session of the same options that was given inputs() in one or many calls (C1).
// Shapes:    none.
// Units:     ranks and token_ids as in session.h.
// Requires:  Commit: what Stage of this session returned (LETHE_CHECK). At most one staged Forget at a
//            time, and while it lives nothing but inputs() is called on the session, which may be those
//            of before or of after.
// Rejects:   PlanForget, Stage: INVALID_ARGUMENT: not exactly one kind of selector, an empty range or
//            label, policy kUnspecified, nothing before before_token_id; NOT_FOUND: an explicit id
//            that is not retained, or a range, label or history that selects nothing;
//            FAILED_PRECONDITION: policy kFail and there are derived tokens; Stage also what the
//            checkpoint says. Messages hold no ids and no labels.
// Effects:   a staged Forget destroyed without Commit leaves the session as it was.
// Numerics:  bit-exact.
// Threads:   compatible.
#ifndef LETHE_SERVER_SESSION_ANY_SESSION_H_
#define LETHE_SERVER_SESSION_ANY_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "audit/state/state_digest.h"
#include "server/session/forget.h"
#include "server/session/inputs.h"
#include "server/session/sv_head.h"

namespace lethe {

// What a session costs, in bytes (no part of the state).
struct SessionBytes {
  size_t state = 0;
  size_t snapshots = 0;
  size_t inputs = 0;
  size_t stored_inputs = 0;  // of the bank, for Forget
};

// A Forget computed and not yet in force.
class AnyStagedForget {
 public:
  virtual ~AnyStagedForget() = default;
  // Complete, digest_after included, so that a certificate can be prepared before Commit.
  virtual const ForgetResult& result() const = 0;
  // Of the state after the Forget.
  virtual std::vector<SvHead> SvHeads() const = 0;
  // After the Forget.
  virtual const Inputs& inputs() const = 0;
};

class AnySession {
 public:
  virtual ~AnySession() = default;
  AnySession(const AnySession&) = delete;
  AnySession& operator=(const AnySession&) = delete;

  virtual const Inputs& inputs() const = 0;
  int64_t num_tokens() const { return inputs().size(); }

  // The digest of design 2.2 with its named parts.
  virtual audit::StateParts StateParts() const = 0;
  audit::Sha256Digest Digest() const { return StateParts().Digest(); }

  // The support-vector heads in the order and under the names that certificates use.
  virtual std::vector<SvHead> SvHeads() const = 0;

  // What a Forget would do and cost (validate_only).
  virtual absl::StatusOr<ForgetPlan> PlanForget(const ForgetSelector& selector,
                                                DerivedPolicy policy,
                                                std::optional<ForgetWay> way) const = 0;
  virtual absl::StatusOr<std::unique_ptr<AnyStagedForget>> Stage(const ForgetSelector& selector,
                                                                 DerivedPolicy policy,
                                                                 const Checkpoint& checkpoint,
                                                                 std::optional<ForgetWay> way) = 0;
  virtual absl::StatusOr<ForgetResult> CommitStaged(std::unique_ptr<AnyStagedForget> staged) = 0;

  virtual SessionBytes bytes() const = 0;
  virtual std::vector<int64_t> snapshot_ranks() const = 0;
  // Margin and error sets of all heads.
  virtual int64_t num_support_vectors() const = 0;

 protected:
  AnySession() = default;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_ANY_SESSION_H_
