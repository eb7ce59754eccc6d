#include "server/session_registry/restore.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "audit/crypto/secret.h"
#include "kernels/base/status_macros.h"
#include "server/diagnostics/log.h"
#include "server/model/numerics_id.h"
#include "server/session_registry/durable_entry.h"
#include "server/session_registry/saved_fields.h"

namespace lethe {
namespace {

// So many are stored beside each other, and so many are added at once.
constexpr int64_t kMaxSpilled = 16;
constexpr int kSpilledAtOnce = 4;

// In front of a snapshot: the arithmetic that it belongs to.
std::string ArithmeticBytes(const SessionEntry& entry) {
  const Numerics numerics = NumericsOf(entry.model.get());
  ByteWriter writer;
  WriteDigest(numerics.id, &writer);
  writer.String(numerics.device_kind);
  return writer.Take();
}

void WipeAll(std::vector<std::string>* bodies) {
  for (std::string& body : *bodies) audit::SecureWipe(&body);
}

// Those of this arithmetic; none when there are others.
absl::StatusOr<std::vector<std::string>> ReadSnapshots(const SessionEntry& entry) {
  LETHE_ASSIGN_OR_RETURN(std::vector<std::string> bodies, entry.journal->ReadSnapshots());
  const std::string arithmetic = ArithmeticBytes(entry);
  for (std::string& body : bodies) {
    if (body.compare(0, arithmetic.size(), arithmetic) != 0) {
      WipeAll(&bodies);
      return std::vector<std::string>();
    }
    body.erase(0, arithmetic.size());
  }
  return bodies;
}

// Null: there are none that could be used.
std::unique_ptr<Session> ResumeModelSession(const SessionEntry& entry,
                                            const SavedCounters& counters, Inputs inputs) {
  if (entry.journal->num_snapshots() == 0) return nullptr;
  absl::StatusOr<std::vector<std::string>> snapshots = ReadSnapshots(entry);
  absl::Status failed = snapshots.status();
  if (snapshots.ok() && !snapshots->empty()) {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Resume(
        entry.model, entry.options, std::move(inputs), counters.next_token_id, *snapshots);
    WipeAll(&*snapshots);
    if (session.ok()) return *std::move(session);
    failed = session.status();
  }
  if (!failed.ok()) {
    LogError(absl::StrCat("a snapshot of stored session ", entry.journal->number(),
                          " is of no use, its inputs are evaluated instead: ", failed.message()));
  }
  // A cache: whatever becomes of this, the session is served from its inputs.
  entry.journal->DropSnapshots().IgnoreError();
  return nullptr;
}

absl::StatusOr<std::unique_ptr<AnySession>> RestoreModelSession(const SessionEntry& entry,
                                                                const SavedCounters& counters) {
  LETHE_ASSIGN_OR_RETURN(DecodedInputs decoded, entry.journal->ReadInputs());
  std::unique_ptr<Session> resumed = ResumeModelSession(entry, counters, Inputs(decoded.inputs));
  if (resumed != nullptr) return std::unique_ptr<AnySession>(std::move(resumed));
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                         Session::Rebuild(entry.model, entry.options, std::move(decoded.inputs),
                                          counters.next_token_id));
  return session;
}

absl::StatusOr<std::unique_ptr<AnySession>> RestoreVectorSession(const SessionEntry& entry,
                                                                 const SavedCounters& counters,
                                                                 bool selected) {
  LETHE_ASSIGN_OR_RETURN(DecodedInputs decoded, entry.journal->ReadInputs());
  StoredVectors vectors;
  vectors.inputs = std::move(decoded.inputs);
  vectors.keys = std::move(decoded.keys);
  vectors.values = std::move(decoded.values);
  vectors.next_token_id = counters.next_token_id;
  vectors.epoch = counters.vector_epoch;
  vectors.selected = selected;
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<VectorSession> session,
                         VectorSession::Rebuild(*entry.vector_options, std::move(vectors)));
  return session;
}

}  // namespace

SessionEntry::RestoreFunction RestoreFrom(const SessionEntry& entry, const SavedCounters& counters,
                                          bool selected) {
  return [&entry, counters, selected] {
    return entry.model != nullptr ? RestoreModelSession(entry, counters)
                                  : RestoreVectorSession(entry, counters, selected);
  };
}

bool IsWorthSpilling(const SessionEntry& entry) {
  if (entry.journal == nullptr || entry.model == nullptr || entry.session == nullptr) return false;
  const auto& session = static_cast<const Session&>(*entry.session);
  return session.resumable_rank() - entry.journal->snapshot_rank() >= kSpillTokens;
}

absl::Status Spill(SessionEntry* entry) {
  if (!IsWorthSpilling(*entry)) return absl::OkStatus();
  const auto& session = static_cast<const Session&>(*entry->session);
  const bool instead = entry->journal->num_snapshots() + kSpilledAtOnce > kMaxSpilled;
  const int64_t behind = instead ? 0 : entry->journal->snapshot_rank();
  const std::string arithmetic = ArithmeticBytes(*entry);
  std::vector<SessionJournal::Snapshot> snapshots;
  for (SnapshotBytes& written : session.SnapshotsBehind(behind, kSpilledAtOnce)) {
    const uint64_t end_id = session.inputs().at(written.rank - 1).token_id + 1;
    snapshots.push_back({arithmetic + written.bytes, end_id, written.rank});
    audit::SecureWipe(&written.bytes);
  }
  if (snapshots.empty()) return absl::OkStatus();
  return WithStoreReason(entry->journal->AddSnapshots(std::move(snapshots), instead));
}

bool Evict(SessionEntry* entry) {
  if (entry->session == nullptr) return true;
  const AnySession& session = *entry->session;
  if (entry->journal == nullptr || entry->writing || !entry->LiveForks().empty() ||
      entry->journal->num_inputs() != session.num_tokens()) {
    return false;
  }
  const bool selected =
      entry->model == nullptr && static_cast<const VectorSession&>(session).selected();
  entry->restore = RestoreFrom(*entry, CountersOf(*entry), selected);
  entry->session.reset();
  entry->Publish();
  return true;
}

}  // namespace lethe
