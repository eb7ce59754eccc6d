#include "server/recovery/replay_erasures.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "server/certification/forgetter.h"

namespace lethe {
namespace {

// Nobody waits for the work and nobody ends it.
class StartCall final : public Call {
 public:
  absl::Status Check() const override { return absl::OkStatus(); }
  bool stopping() const override { return false; }
};

struct SessionErasures {
  bool deleted = false;
  std::vector<TokenIdRange> token_ids;
  audit::Sha256Digest last_id{};
  RequestKey deletion;  // what asked for it
};

std::map<std::string, SessionErasures> BySession(const std::vector<Erasure>& erasures) {
  std::map<std::string, SessionErasures> by_session;
  for (const Erasure& erasure : erasures) {
    SessionErasures& all = by_session[erasure.session_id];
    all.last_id = erasure.id;
    if (erasure.kind == ErasureKind::kSession) {
      all.deleted = true;
      all.deletion = {erasure.request_id, erasure.request_hash};
    }
    for (const LedgerRange& range : erasure.token_ids) {
      all.token_ids.push_back({range.first, range.end});
    }
  }
  return by_session;
}

std::vector<uint64_t> RetainedOf(const Inputs& inputs, absl::Span<const TokenIdRange> ranges) {
  std::vector<uint64_t> retained;
  for (const TokenIdRange& range : ranges) {
    const auto [first, end] = inputs.RanksOf(range);
    for (int64_t rank = first; rank < end; ++rank) retained.push_back(inputs.at(rank).token_id);
  }
  std::sort(retained.begin(), retained.end());
  retained.erase(std::unique(retained.begin(), retained.end()), retained.end());
  return retained;
}

// A restored log is older than heads that were signed, and each Forget that is done again needs a record.
absl::string_view WayOut(const ReplayTools& tools) {
  return tools.trail->log->frozen().ok()
             ? ""
             : "; first begin the next log with --restore-log, then start again";
}

absl::Status ForgetAgain(const ReplayTools& tools, const SessionErasures& erasures,
                         const std::shared_ptr<SessionEntry>& entry, ReplaySummary* summary) {
  if (const absl::Status available = entry->Availability(); !available.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "erasure ledger: something in a session was forgotten since the data directory "
        "was copied, and the session cannot be served: ",
        available.message()));
  }
  // As stored: the session need not be evaluated where nothing is to be done.
  LETHE_ASSIGN_OR_RETURN(const DecodedInputs stored, entry->journal->ReadInputs());
  ForgetCommand command;
  command.selector.token_ids = RetainedOf(stored.inputs, erasures.token_ids);
  if (command.selector.token_ids.empty()) return absl::OkStatus();
  command.policy = DerivedPolicy::kKeepAndReport;
  command.request.request_id =
      absl::StrCat("erasure-ledger-",
                   absl::BytesToHexString(audit::AsStringView(erasures.last_id)).substr(0, 32));
  command.request.content = erasures.last_id;
  const absl::Status status =
      ForgetInputs(command, StartCall(), tools.scheduler, *tools.trail, entry).status();
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("erasure ledger: what was forgotten since the data directory "
                                     "was copied cannot be forgotten again: ",
                                     status.message(), WayOut(tools)));
  }
  ++summary->num_sessions;
  summary->num_forgotten += static_cast<int64_t>(command.selector.token_ids.size());
  return absl::OkStatus();
}

// A session that is not there; unless it is one that is too damaged to say its name.
absl::Status CheckIsGone(const RecoverySummary& recovered) {
  if (recovered.num_unnamed == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "erasure ledger: something was forgotten since the data directory was copied, and the "
      "session "
      "may be a damaged one: restore another copy of the data directory");
}

}  // namespace

absl::StatusOr<ReplaySummary> ReplayErasures(const ReplayTools& tools,
                                             const RecoverySummary& recovered) {
  ReplaySummary summary;
  ErasureLedger* const ledger = tools.trail->ledger;
  if (!FaultActive(Fault::kLedgerNotReplayed)) {
    for (const auto& [session_id, erasures] : BySession(ledger->Unsettled())) {
      const absl::StatusOr<std::shared_ptr<SessionEntry>> entry = tools.registry->Find(session_id);
      if (!entry.ok()) {
        LETHE_RETURN_IF_ERROR(CheckIsGone(recovered));
      } else if (erasures.deleted) {
        absl::Status deleted = tools.registry->Delete(session_id, erasures.deletion).status();
        // Its request_id may be another request's in the restored directory.
        if (!deleted.ok()) deleted = tools.registry->Delete(session_id, {}).status();
        LETHE_RETURN_IF_ERROR(deleted);
        ++summary.num_deleted;
      } else {
        LETHE_RETURN_IF_ERROR(ForgetAgain(tools, erasures, *entry, &summary));
      }
    }
  }
  ledger->SettleAll();
  LETHE_RETURN_IF_ERROR(tools.store->StoreLedgerPosition());
  return summary;
}

}  // namespace lethe
