#include "server/recovery/recovery.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "audit/certificate/opening.h"
#include "kernels/base/status_macros.h"
#include "server/certification/migration.h"
#include "server/diagnostics/log.h"
#include "server/model/model.h"
#include "server/model/numerics_id.h"
#include "server/recovery/stored_answers.h"
#include "server/session_registry/restore.h"
#include "server/session_registry/saved_session.h"
#include "server/session_registry/tenant_text.h"

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

// Everything of a stored session but its inputs.
struct Checked {
  SavedSession saved;
  std::unique_ptr<SessionJournal> journal;
  std::vector<audit::Opening> openings;
  std::vector<std::shared_ptr<StoredAnswer>> answers;  // of saved.requests
};

// A name that does not open is of no consequence while the session's own rows do.
absl::Status CheckName(const SavedSession& saved, SessionJournal* journal) {
  const absl::StatusOr<std::string> name = journal->ReadName();
  if (absl::IsNotFound(name.status())) return absl::OkStatus();
  if (!name.ok()) {
    LogError(absl::StrCat("stored session ", journal->number(),
                          ": the name that is kept apart is damaged, the session is not"));
    return absl::OkStatus();
  }
  return *name == WithTenant(saved.tenant, saved.session_id)
             ? absl::OkStatus()
             : absl::DataLossError("stored session: two names");
}

absl::StatusOr<Checked> Check(const RecoverySources& sources, int64_t number,
                              absl::Span<const StoredRow> rows) {
  Checked checked;
  LETHE_ASSIGN_OR_RETURN(JournalState state, JournalState::FromRows(rows));
  const uint64_t end_id = state.end_id();
  checked.journal = std::make_unique<SessionJournal>(sources.store, number, std::move(state));
  LETHE_ASSIGN_OR_RETURN(const std::vector<std::string> meta, checked.journal->ReadMeta());
  LETHE_ASSIGN_OR_RETURN(checked.saved, ReadMeta(meta));
  SavedSession& saved = checked.saved;
  LETHE_RETURN_IF_ERROR(CheckName(saved, checked.journal.get()));
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
  return checked;
}

bool IsSuperseded(const std::vector<RequestTable::Saved>& requests, size_t index) {
  return std::any_of(requests.begin() + static_cast<std::ptrdiff_t>(index) + 1, requests.end(),
                     [&](const RequestTable::Saved& later) {
                       return later.request_id == requests[index].request_id;
                     });
}

// What was under way when the last process ended has ended with it. This is stored before anything that takes the ids from
// there on.
absl::Status EndAnswers(Checked* checked) {
  const SavedSession& saved = checked->saved;
  for (size_t i = 0; i < checked->answers.size(); ++i) {
    if (!checked->answers[i]->EndAt(saved.counters.next_token_id)) continue;
    if (IsSuperseded(saved.requests, i)) continue;
    SavedDelta delta;
    delta.counters = saved.counters;
    delta.request = saved.requests[i];
    delta.request->answer = checked->answers[i]->Encode(true);
    LETHE_RETURN_IF_ERROR(checked->journal->AddMeta(WriteDelta(delta), Durability::kHandedOver));
  }
  return absl::OkStatus();
}

bool IsMoved(const SavedSession& saved, const Model* model) {
  return NumericsOf(model) != Numerics{saved.numerics_id, saved.device_kind};
}

SessionEntry::Stored StoredOf(const RecoverySources& sources, const SavedSession& saved,
                              const std::shared_ptr<const Model>& model) {
  SessionEntry::Stored stored;
  stored.id = saved.session_id;
  stored.tenant = saved.tenant;
  stored.name = saved.display_name;
  stored.create_time_us = saved.create_time_us;
  if (saved.model.has_value()) {
    stored.model = model;
    stored.options.memory = saved.model->memory;
    stored.options.stored_input_bytes = sources.stored_input_bytes;
    if (model == nullptr) {
      stored.unavailable = ModelNotLoadedError(saved.session_id, saved.model->name);
    }
  } else {
    stored.vector_options = saved.vectors;
  }
  return stored;
}

std::shared_ptr<SessionEntry> MakeEntry(const RecoverySources& sources, Checked checked,
                                        const std::shared_ptr<const Model>& model) {
  SavedSession& saved = checked.saved;
  SessionEntry::Stored stored = StoredOf(sources, saved, model);
  stored.journal = std::move(checked.journal);
  const bool available = stored.unavailable.ok();
  auto entry = std::make_shared<SessionEntry>(std::move(stored));
  FairMutexLock lock(&entry->mutex);
  if (available) entry->restore = RestoreFrom(*entry, saved.counters, saved.selected);
  if (available && IsMoved(saved, model.get())) {
    const audit::Arithmetic from{saved.numerics_id, saved.device_kind};
    entry->on_restored =
        [from, trail = sources.trail](SessionEntry* restored)
            ABSL_NO_THREAD_SAFETY_ANALYSIS { return RecordMigration(from, *trail, restored); };
  }
  entry->mark = saved.mark;
  entry->num_exports = saved.counters.num_exports;
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

// What is damaged keeps its place: it says so to whoever asks for it by name, and can be deleted.
void QuarantineOne(const RecoverySources& sources, int64_t number, absl::Span<const StoredRow> rows,
                   const absl::Status& cause, SessionRegistry* registry, RecoverySummary* summary) {
  ++summary->num_quarantined;
  SessionEntry::Stored stored;
  stored.journal =
      std::make_unique<SessionJournal>(sources.store, number, JournalState::Damaged(rows));
  absl::StatusOr<std::string> name = stored.journal->ReadName();
  if (!name.ok()) {
    ++summary->num_unnamed;
    registry->CountUnnamed();
    LogError(absl::StrCat("stored session ", number,
                          " is damaged, its name with it, and stays on "
                          "disk unserved: ",
                          cause.message()));
    return;
  }
  std::tie(stored.tenant, stored.id) = SplitTenant(*name);
  auto entry = std::make_shared<SessionEntry>(std::move(stored));
  {
    FairMutexLock lock(&entry->mutex);
    entry->Quarantine(cause);
  }
  registry->Adopt(std::move(entry));
}

absl::Status RecoverOne(const RecoverySources& sources, int64_t number,
                        absl::Span<const StoredRow> rows, bool incomplete,
                        SessionRegistry* registry, RecoverySummary* summary) {
  absl::StatusOr<Checked> checked = Check(sources, number, rows);
  if (incomplete) checked = absl::DataLossError("rows are missing, or are not the session's");
  if (!checked.ok()) {
    QuarantineOne(sources, number, rows, checked.status(), registry, summary);
    return absl::OkStatus();
  }
  LETHE_RETURN_IF_ERROR(EndAnswers(&*checked));
  const SavedSession& saved = checked->saved;
  std::shared_ptr<const Model> model;
  if (saved.model.has_value()) {
    model = FindModel(*sources.models, saved.model->digest);
    if (model == nullptr) {
      ++summary->num_waiting;
      LogError(absl::StrCat("stored session ", number, " waits on disk: its model ",
                            saved.model->name, " is not loaded, or with other weights"));
    }
  }
  if (model != nullptr || !saved.model.has_value()) {
    ++summary->num_sessions;
    summary->num_inputs += checked->journal->num_inputs();
    if (IsMoved(saved, model.get())) ++summary->num_moved;
  }
  registry->Adopt(MakeEntry(sources, *std::move(checked), model));
  return absl::OkStatus();
}

absl::Status ReadRequests(SessionJournal* journal, SessionRegistry* registry) {
  LETHE_ASSIGN_OR_RETURN(const std::vector<std::string> meta, journal->ReadMeta());
  LETHE_ASSIGN_OR_RETURN(const SavedSession saved, ReadMeta(meta));
  for (const RequestTable::Saved& request : saved.requests) {
    LETHE_ASSIGN_OR_RETURN(std::shared_ptr<StoredAnswer> answer, DecodeAnswer(request.answer, {}));
    registry->AdoptRequest(request, std::move(answer));
  }
  return absl::OkStatus();
}

// Without them a repeated creation or deletion is not known as such: worth a report, not the sessions.
absl::Status RecoverRegistry(const RecoverySources& sources, absl::Span<const StoredRow> rows,
                             bool incomplete, SessionRegistry* registry, RecoverySummary* summary) {
  absl::StatusOr<JournalState> state = JournalState::FromRows(rows);
  if (incomplete) state = absl::DataLossError("rows are missing, or are not the registry's");
  std::unique_ptr<SessionJournal> journal;
  absl::Status read = state.status();
  if (read.ok()) {
    journal = std::make_unique<SessionJournal>(sources.store, kRegistryNumber, *std::move(state));
    if (!journal->is_empty()) read = ReadRequests(journal.get(), registry);
  }
  if (!read.ok()) {
    if (!absl::IsDataLoss(read)) return read;
    summary->requests_lost = true;
    LogError(
        absl::StrCat("the requests of CreateSession and DeleteSession are damaged; repeats of "
                     "earlier ones will not be recognised: ",
                     read.message()));
    journal = std::make_unique<SessionJournal>(sources.store, kRegistryNumber,
                                               JournalState::Damaged(rows));
    LETHE_RETURN_IF_ERROR(journal->StartOver(WriteSnapshot(SavedSession())));
  }
  return registry->UseStore(sources.store, std::move(journal));
}

}  // namespace

absl::StatusOr<RecoverySummary> RecoverSessions(const RecoverySources& sources,
                                                SessionRegistry* registry) {
  const auto start = std::chrono::steady_clock::now();
  RecoverySummary summary;
  LETHE_ASSIGN_OR_RETURN(auto by_session, sources.store->AllRows());
  LETHE_ASSIGN_OR_RETURN(const std::set<int64_t> incomplete, sources.store->Incomplete());
  for (const int64_t number : incomplete) by_session[number];  // all of its rows may be gone
  LETHE_RETURN_IF_ERROR(RecoverRegistry(sources, by_session[kRegistryNumber],
                                        incomplete.count(kRegistryNumber) > 0, registry, &summary));
  for (const auto& [number, rows] : by_session) {
    const bool is_job = !rows.empty() && rows.front().kind == RowKind::kJob;
    if (number == kRegistryNumber || is_job) continue;
    LETHE_RETURN_IF_ERROR(
        RecoverOne(sources, number, rows, incomplete.count(number) > 0, registry, &summary));
  }
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return summary;
}

int64_t CheckStoredSessions(const SessionRegistry& registry, const std::function<bool()>& go_on) {
  constexpr size_t kPage = 100;
  int64_t num_quarantined = 0;
  std::string after;
  while (true) {
    const std::vector<std::shared_ptr<SessionEntry>> page = registry.List(after, kPage);
    if (page.empty()) return num_quarantined;
    for (const std::shared_ptr<SessionEntry>& entry : page) {
      if (!go_on()) return num_quarantined;
      FairMutexLock lock(&entry->mutex);
      if (absl::IsDataLoss(entry->CheckStored())) ++num_quarantined;
    }
    after = page.back()->session_id;
  }
}

}  // namespace lethe
