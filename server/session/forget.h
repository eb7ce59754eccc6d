// ForgetSelector, DerivedPolicy, ForgetPlan, ForgetResult, Checkpoint: what a Forget is asked, what
// it answers, and what may stop it.
//
// Equation:  none.
// Shapes:    id lists in rank order.
// Units:     token_ids; ranks as before the Forget unless said otherwise; tokens evaluated.
// Requires:  none.
// Rejects:   none (Session::StageForget checks).
// Effects:   none.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_SESSION_FORGET_H_
#define LETHE_SERVER_SESSION_FORGET_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "audit/crypto/sha256.h"

namespace lethe {

// Asked before every chunk of long work: an error ends the work with it.
using Checkpoint = std::function<absl::Status()>;

// Half-open: first <= token_id < end.
struct TokenIdRange {
  uint64_t first = 0;
  uint64_t end = 0;
  bool operator==(const TokenIdRange& other) const {
    return first == other.first && end == other.end;
  }
};

// Exactly one of the four kinds is set; token_ids and ranges are one kind and may be mixed.
struct ForgetSelector {
  std::vector<uint64_t> token_ids;          // each must be retained
  std::vector<TokenIdRange> ranges;         // each selects the retained ids in it, at least one
  std::optional<std::string> subject;       // every retained input with this label; not empty
  std::optional<uint64_t> before_token_id;  // every input of lower rank than this retained id
  bool everything = false;                  // the whole history

  static ForgetSelector Ids(std::vector<uint64_t> token_ids);
  static ForgetSelector Ranges(std::vector<TokenIdRange> ranges);
  static ForgetSelector Subject(std::string subject);
  static ForgetSelector Before(uint64_t token_id);
  static ForgetSelector Everything();
};

// What becomes of retained generated tokens after the first forgotten rank (contract C4).
enum class DerivedPolicy { kUnspecified, kKeepAndReport, kForgetDerived, kFail };

// How the state of the shorter history is reached (forget_route.h).
enum class ForgetWay {
  kReevaluation,  // the model evaluates the rest of the history again
  kReplay,        // local layers, support-vector set change, replay of the streaming memories
};

struct ForgetPlan {
  std::vector<uint64_t> selected_ids;  // what the selector names
  std::vector<uint64_t>
      derived_ids;  // retained generated tokens after the first selected one, not selected
  std::vector<int64_t> removed_ranks;  // selected, and derived under kForgetDerived
  int64_t num_tokens_before = 0;
  int64_t num_tokens_after = 0;
  int64_t first_rank = 0;     // first removed rank
  int64_t snapshot_rank = 0;  // evaluation or replay resumes here
  ForgetWay way = ForgetWay::kReevaluation;
  int64_t tokens_to_evaluate = 0;  // by the model, re-laying the snapshot ladder included
  int64_t local_tokens = 0;        // replay: by the local layers, warm-up included
  int64_t tokens_to_replay = 0;    // replay: by the streaming memories, re-laying included
  int64_t snapshots_destroyed = 0;
};

// Where the time of a Forget went, in seconds (no part of the state).
struct ForgetTimes {
  double evaluate = 0.0;  // re-evaluation: the model; replay: the local layers
  double replay = 0.0;    // the streaming memories
  double solve = 0.0;     // replay: the support-vector set change and the last token's read
  double digest = 0.0;    // before and after
};

struct ForgetResult {
  std::vector<uint64_t> forgotten_ids;        // what the selector named
  std::vector<uint64_t> derived_kept_ids;     // under kKeepAndReport
  std::vector<uint64_t> derived_removed_ids;  // under kForgetDerived
  int64_t num_tokens_before = 0;
  int64_t num_tokens_after = 0;
  int64_t first_rank = 0;
  int64_t snapshot_rank = 0;
  ForgetWay way = ForgetWay::kReevaluation;
  int64_t tokens_evaluated = 0;
  int64_t local_tokens = 0;
  int64_t tokens_replayed = 0;
  int64_t dropped_inputs = 0;  // replay: tokens whose stored inputs had to be evaluated again
  int64_t snapshots_destroyed = 0;
  ForgetTimes times;
  audit::Sha256Digest digest_before{};
  audit::Sha256Digest digest_after{};
  std::vector<TokenIdRange>
      gaps;  // token_ids once given out and no longer retained, after the Forget
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_FORGET_H_
