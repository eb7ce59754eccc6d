#include "server/session_registry/restore.h"

#include <utility>

#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

absl::StatusOr<std::unique_ptr<AnySession>> RestoreModelSession(const SessionEntry& entry,
                                                                const SavedCounters& counters) {
  LETHE_ASSIGN_OR_RETURN(DecodedInputs decoded, entry.journal->ReadInputs());
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
