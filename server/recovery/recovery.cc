#include "server/recovery/recovery.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "audit/certificate/opening.h"
#include "kernels/base/status_macros.h"
#include "server/diagnostics/log.h"
#include "server/model/model.h"
#include "server/model/numerics_id.h"
#include "server/recovery/stored_answers.h"
#include "server/session_registry/saved_session.h"

namespace lethe {
namespace {

// The registry's own rows.
constexpr int64_t kRegistryNumber = 0;

std::shared_ptr<const Model> FindModel(const ModelSet& models, const audit::Sha256Digest& digest) {
  for (const auto& [name, model] : models.models()) {
    if (model->digest() == digest) return model;
  }
  return nullptr;
}

// Everything of a stored session that can be checked without evaluating it.
struct Checked {
  SavedSession saved;
  std::unique_ptr<SessionJournal> journal;
  std::vector<audit::Opening> openings;
  std::vector<std::shared_ptr<StoredAnswer>> answers;  // of saved.requests
  int64_t num_inputs = 0;
};

absl::StatusOr<Checked> Check(const RecoverySources& sources, int64_t number,
                              absl::Span<const StoredRow> rows) {
  Checked checked;
  LETHE_ASSIGN_OR_RETURN(JournalState state, JournalState::FromRows(rows));
  const uint64_t end_id = state.end_id();
  checked.journal = std::make_unique<SessionJournal>(sources.store, number, std::move(state));
  LETHE_ASSIGN_OR_RETURN(const std::vector<std::string> meta, checked.journal->ReadMeta());
  LETHE_ASSIGN_OR_RETURN(checked.saved, ReadMeta(meta));
  SavedSession& saved = checked.saved;
  saved.counters.next_token_id = std::max(saved.counters.next_token_id, end_id);
  for (RecordRef& ref : saved.record_refs) {
    absl::StatusOr<uint64_t> index = sources.log->FindLeaf(ref.leaf_hash);
    if (absl::IsNotFound(index.status())) {
      return absl::DataLossError("the audit log does not hold a record of the session");
    }
    if (!index.ok()) return index.status();
    ref.leaf_index = *index;
  }
  for (const std::string& opening : saved.openings) {
    LETHE_ASSIGN_OR_RETURN(audit::Opening parsed, audit::ParseOpening(opening));
    checked.openings.push_back(std::move(parsed));
  }
  for (const RequestTable::Saved& request : saved.requests) {
    LETHE_ASSIGN_OR_RETURN(std::shared_ptr<StoredAnswer> answer,
                           DecodeAnswer(request.answer, saved.record_refs));
    checked.answers.push_back(std::move(answer));
  }
  LETHE_ASSIGN_OR_RETURN(const DecodedInputs inputs, checked.journal->ReadInputs());
  checked.num_inputs = inputs.inputs.size();
  return checked;
}

SessionEntry::Stored StoredModelSession(const RecoverySources& sources, const SavedSession& saved,
                                        const std::shared_ptr<const Model>& model,
                                        SessionJournal* journal) {
  SessionEntry::Stored stored;
  stored.model = model;
  stored.options.memory = saved.model->memory;
  stored.options.stored_input_bytes = sources.stored_input_bytes;
  stored.restore =
      [model, journal, options = stored.options,
       next_token_id =
           saved.counters.next_token_id]() -> absl::StatusOr<std::unique_ptr<AnySession>> {
    LETHE_ASSIGN_OR_RETURN(DecodedInputs decoded, journal->ReadInputs());
    LETHE_ASSIGN_OR_RETURN(
        std::unique_ptr<Session> session,
        Session::Rebuild(model, options, std::move(decoded.inputs), next_token_id));
    return session;
  };
  return stored;
}

SessionEntry::Stored StoredVectorSession(const SavedSession& saved, SessionJournal* journal) {
  SessionEntry::Stored stored;
  stored.vector_options = saved.vectors;
  stored.restore = [journal, options = saved.vectors, counters = saved.counters,
                    selected = saved.selected]() -> absl::StatusOr<std::unique_ptr<AnySession>> {
    LETHE_ASSIGN_OR_RETURN(DecodedInputs decoded, journal->ReadInputs());
    StoredVectors vectors;
    vectors.inputs = std::move(decoded.inputs);
    vectors.keys = std::move(decoded.keys);
    vectors.values = std::move(decoded.values);
    vectors.next_token_id = counters.next_token_id;
    vectors.epoch = counters.vector_epoch;
    vectors.selected = selected;
    LETHE_ASSIGN_OR_RETURN(std::unique_ptr<VectorSession> session,
                           VectorSession::Rebuild(options, std::move(vectors)));
    return session;
  };
  return stored;
}

std::shared_ptr<SessionEntry> MakeEntry(const RecoverySources& sources, Checked checked,
                                        const std::shared_ptr<const Model>& model) {
  SavedSession& saved = checked.saved;
  SessionJournal* const journal = checked.journal.get();
  SessionEntry::Stored stored = model != nullptr
                                    ? StoredModelSession(sources, saved, model, journal)
                                    : StoredVectorSession(saved, journal);
  stored.id = saved.session_id;
  stored.name = saved.display_name;
  stored.create_time_us = saved.create_time_us;
  stored.journal = std::move(checked.journal);
  auto entry = std::make_shared<SessionEntry>(std::move(stored));
  FairMutexLock lock(&entry->mutex);
  entry->mark = saved.mark;
  const audit::Sha256Digest newest =
      saved.record_refs.empty() ? audit::Sha256Digest{} : saved.record_refs.back().leaf_hash;
  entry->records =
      audit::SessionRecords::Restore(saved.record_refs.size(), newest, std::move(checked.openings));
  entry->record_refs = std::move(saved.record_refs);
  for (size_t i = 0; i < saved.requests.size(); ++i) {
    entry->requests.Restore(saved.requests[i], std::move(checked.answers[i]));
  }
  entry->Publish();
  return entry;
}

void RecoverOne(const RecoverySources& sources, int64_t number, absl::Span<const StoredRow> rows,
                SessionRegistry* registry, RecoverySummary* summary) {
  absl::StatusOr<Checked> checked = Check(sources, number, rows);
  if (!checked.ok()) {
    ++summary->num_quarantined;
    LogError(absl::StrCat("stored session ", number,
                          " is damaged and stays on disk unserved: ", checked.status().message()));
    return;
  }
  const SavedSession& saved = checked->saved;
  std::shared_ptr<const Model> model;
  if (saved.model.has_value()) {
    model = FindModel(*sources.models, saved.model->digest);
    if (model == nullptr) {
      ++summary->num_waiting;
      LogError(absl::StrCat("stored session ", number, " waits on disk: its model ",
                            saved.model->name, " is not loaded, or with other weights"));
      return;
    }
  }
  ++summary->num_sessions;
  summary->num_inputs += checked->num_inputs;
  if (saved.numerics_id != NumericsId() || saved.device_kind != kDeviceKind) ++summary->num_moved;
  registry->Adopt(MakeEntry(sources, *std::move(checked), model));
}

absl::Status RecoverRegistry(const RecoverySources& sources, absl::Span<const StoredRow> rows,
                             SessionRegistry* registry) {
  LETHE_ASSIGN_OR_RETURN(JournalState state, JournalState::FromRows(rows));
  auto journal = std::make_unique<SessionJournal>(sources.store, kRegistryNumber, std::move(state));
  if (!journal->is_empty()) {
    LETHE_ASSIGN_OR_RETURN(const std::vector<std::string> meta, journal->ReadMeta());
    LETHE_ASSIGN_OR_RETURN(const SavedSession saved, ReadMeta(meta));
    for (const RequestTable::Saved& request : saved.requests) {
      LETHE_ASSIGN_OR_RETURN(std::shared_ptr<StoredAnswer> answer,
                             DecodeAnswer(request.answer, {}));
      registry->AdoptRequest(request, std::move(answer));
    }
  }
  return registry->UseStore(sources.store, std::move(journal));
}

}  // namespace

absl::StatusOr<RecoverySummary> RecoverSessions(const RecoverySources& sources,
                                                SessionRegistry* registry) {
  const auto start = std::chrono::steady_clock::now();
  RecoverySummary summary;
  LETHE_ASSIGN_OR_RETURN(auto by_session, sources.store->AllRows());
  LETHE_RETURN_IF_ERROR(RecoverRegistry(sources, by_session[kRegistryNumber], registry));
  for (const auto& [number, rows] : by_session) {
    if (number != kRegistryNumber) RecoverOne(sources, number, rows, registry, &summary);
  }
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return summary;
}

}  // namespace lethe
