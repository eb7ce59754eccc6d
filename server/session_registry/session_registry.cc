#include "server/session_registry/session_registry.h"

#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "audit/crypto/secret.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/wall_clock.h"
#include "server/error/error_info.h"
#include "server/limits/limits.h"
#include "server/session_registry/create_answer.h"
#include "server/session_registry/durable_entry.h"
#include "server/session_registry/saved_session.h"
#include "server/session_registry/tenant_text.h"

namespace lethe {
namespace {

class DeleteAnswer : public StoredAnswer {
 public:
  explicit DeleteAnswer(int64_t count) : num_inputs(count) {}
  std::string Encode(bool /*keep_openings*/) const override {
    ByteWriter writer;
    writer.U64(static_cast<uint64_t>(AnswerKind::kDelete));
    writer.I64(num_inputs);
    return writer.Take();
  }
  const int64_t num_inputs;
};

// `num_unnamed`: stored sessions that may be the one.
absl::Status SessionNotFound(int64_t num_unnamed) {
  std::string message = "session_id: no such session";
  if (num_unnamed > 0) {
    absl::StrAppend(&message, " that can be read; ", num_unnamed,
                    " on disk are damaged, their names with them");
  }
  return WithErrorInfo(absl::NotFoundError(message),
                       {"SESSION_NOT_FOUND", {{"field", "session_id"}}});
}

absl::StatusOr<std::shared_ptr<SessionEntry>> MakeEntry(const NewSession& wanted) {
  if (wanted.model == nullptr) {
    return std::make_shared<SessionEntry>(RandomId(), wanted.display_name,
                                          std::make_unique<VectorSession>(wanted.vectors),
                                          NowMicros(), wanted.tenant);
  }
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                         Session::Create(wanted.model, wanted.options));
  return std::make_shared<SessionEntry>(RandomId(), wanted.display_name, std::move(session),
                                        NowMicros(), wanted.tenant);
}

std::vector<std::shared_ptr<SessionEntry>> PageOf(
    const std::map<std::string, std::shared_ptr<SessionEntry>>& sessions, const std::string& after,
    size_t max_count) {
  std::vector<std::shared_ptr<SessionEntry>> page;
  for (auto it = sessions.upper_bound(after); it != sessions.end() && page.size() < max_count;
       ++it) {
    page.push_back(it->second);
  }
  return page;
}

}  // namespace

std::string RandomId() {
  constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
  std::array<uint8_t, 26> bytes{};
  audit::RandomBytes(absl::MakeSpan(bytes));
  std::string id;
  for (const uint8_t byte : bytes) id.push_back(kAlphabet[byte & 31]);
  return id;
}

absl::StatusOr<std::shared_ptr<SessionEntry>> SessionRegistry::Create(const NewSession& wanted,
                                                                      const RequestKey& request) {
  MutexLock change_lock(&change_mutex_);
  RequestTable& requests = RequestsOf(wanted.tenant);
  LETHE_ASSIGN_OR_RETURN(const auto answer, requests.Find<CreateAnswer>(request));
  if (answer != nullptr) return Find(wanted.tenant, answer->session_id);
  LETHE_RETURN_IF_ERROR(CheckRoom(wanted.tenant));
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<SessionEntry> entry, MakeEntry(wanted));
  entry->fence = fence_;
  auto created = std::make_shared<CreateAnswer>(entry->session_id);
  if (store_ != nullptr) LETHE_RETURN_IF_ERROR(StoreNew(request, *created, entry.get()));
  requests.Remember(request, std::move(created));
  MutexLock lock(&mutex_);
  Insert(entry);
  return entry;
}

absl::Status SessionRegistry::CheckRoom(absl::string_view tenant) const {
  MutexLock lock(&mutex_);
  const auto num_sessions = static_cast<int64_t>(sessions_.size());
  if (num_sessions >= max_sessions_) {
    return LimitError({"TOO_MANY_SESSIONS", "--max-sessions", max_sessions_, num_sessions + 1},
                      "this server holds as many sessions as it may; delete one");
  }
  const auto own = by_tenant_.find(tenant);
  const auto num_own = own == by_tenant_.end() ? 0 : static_cast<int64_t>(own->second.size());
  if (max_tenant_sessions_ > 0 && num_own >= max_tenant_sessions_) {
    return LimitError({"TOO_MANY_SESSIONS", "--tenant-sessions", max_tenant_sessions_, num_own + 1},
                      "this tenant holds as many sessions as it may; delete one");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SessionEntry>> SessionRegistry::Find(
    const std::string& session_id) const {
  MutexLock lock(&mutex_);
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return SessionNotFound(num_unnamed_);
  return found->second;
}

absl::StatusOr<std::shared_ptr<SessionEntry>> SessionRegistry::Find(
    absl::string_view tenant, const std::string& session_id) const {
  MutexLock lock(&mutex_);
  const auto sessions = by_tenant_.find(tenant);
  if (sessions == by_tenant_.end()) return SessionNotFound(num_unnamed_);
  const auto found = sessions->second.find(session_id);
  if (found == sessions->second.end()) return SessionNotFound(num_unnamed_);
  return found->second;
}

std::vector<std::shared_ptr<SessionEntry>> SessionRegistry::List(const std::string& after,
                                                                 size_t max_count) const {
  MutexLock lock(&mutex_);
  return PageOf(sessions_, after, max_count);
}

std::vector<std::shared_ptr<SessionEntry>> SessionRegistry::List(absl::string_view tenant,
                                                                 const std::string& after,
                                                                 size_t max_count) const {
  MutexLock lock(&mutex_);
  const auto sessions = by_tenant_.find(tenant);
  if (sessions == by_tenant_.end()) return {};
  return PageOf(sessions->second, after, max_count);
}

RequestTable& SessionRegistry::RequestsOf(absl::string_view tenant) {
  return requests_.try_emplace(std::string(tenant)).first->second;
}

void SessionRegistry::Insert(const std::shared_ptr<SessionEntry>& entry) {
  sessions_[entry->session_id] = entry;
  by_tenant_[entry->tenant][entry->session_id] = entry;
}

absl::StatusOr<int64_t> SessionRegistry::Delete(const std::string& session_id,
                                                const RequestKey& request) {
  const absl::StatusOr<std::shared_ptr<SessionEntry>> entry = Find(session_id);
  return Delete(entry.ok() ? (*entry)->tenant : kLocalTenant, session_id, request);
}

absl::StatusOr<int64_t> SessionRegistry::Delete(absl::string_view tenant,
                                                const std::string& session_id,
                                                const RequestKey& request) {
  MutexLock change_lock(&change_mutex_);
  RequestTable& requests = RequestsOf(tenant);
  LETHE_ASSIGN_OR_RETURN(const auto answer, requests.Find<DeleteAnswer>(request));
  if (answer != nullptr) return answer->num_inputs;
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<SessionEntry> entry, Find(tenant, session_id));
  LETHE_ASSIGN_OR_RETURN(const int64_t num_inputs, Destroy(request, entry.get()));
  {
    MutexLock lock(&mutex_);
    sessions_.erase(session_id);
    by_tenant_[entry->tenant].erase(session_id);
  }
  requests.Remember(request, std::make_shared<DeleteAnswer>(num_inputs));
  return num_inputs;
}

absl::Status SessionRegistry::StoreNew(const RequestKey& request, const StoredAnswer& answer,
                                       SessionEntry* entry) {
  LETHE_RETURN_IF_ERROR(WithStoreReason(CompactOwn()));
  SavedDelta delta;
  delta.request = SaveOwnRequest(entry->tenant, request, answer);
  entry->journal = std::make_unique<SessionJournal>(store_, store_->NewSession(), JournalState());
  std::string snapshot;
  {
    FairMutexLock lock(&entry->mutex);
    snapshot = WriteSnapshot(SaveEntry(*entry));
  }
  return WithStoreReason(
      entry->journal->Begin(std::move(snapshot), WithTenant(entry->tenant, entry->session_id),
                            journal_.get(), delta.request ? WriteDelta(delta) : ""));
}

absl::Status SessionRegistry::DestroyStored(const RequestKey& request, std::string own_delta,
                                            SessionEntry* entry) {
  Erasure erasure;
  erasure.kind = ErasureKind::kSession;
  audit::RandomBytes(absl::MakeSpan(erasure.id));
  erasure.session_id = entry->session_id;
  erasure.request_id = request.request_id;
  erasure.request_hash = request.content;
  if (ledger_ != nullptr) {
    LETHE_RETURN_IF_ERROR(ledger_->Begin(erasure));
    ledger_->Settle(erasure.id);
  }
  const absl::Status status = entry->journal->Destroy(journal_.get(), std::move(own_delta));
  if (!status.ok() && ledger_ != nullptr) ledger_->Void(erasure.id).IgnoreError();
  return status;
}

absl::StatusOr<int64_t> SessionRegistry::Destroy(const RequestKey& request, SessionEntry* entry) {
  FairMutexLock lock(&entry->mutex);
  const bool in_memory = entry->session != nullptr;
  const int64_t num_inputs =
      in_memory ? entry->session->num_tokens() : entry->journal->num_inputs();
  if (store_ != nullptr) {
    SavedDelta delta;
    delta.request = SaveOwnRequest(entry->tenant, request, DeleteAnswer(num_inputs));
    LETHE_RETURN_IF_ERROR(
        WithStoreReason(DestroyStored(request, delta.request ? WriteDelta(delta) : "", entry)));
  }
  entry->Clear();
  return num_inputs;
}

void SessionRegistry::CloseSubject(absl::string_view tenant, absl::string_view subject) {
  // An Import is either in the list before, or looks at the fence after.
  MutexLock change_lock(&change_mutex_);
  fence_->Close(tenant, subject);
}

absl::Status SessionRegistry::CompactOwn() {
  if (!journal_->IsLong()) return absl::OkStatus();
  SavedSession own;
  for (const auto& [tenant, requests] : requests_) {
    for (RequestTable::Saved& saved : requests.Save()) {
      saved.request_id = WithTenant(tenant, saved.request_id);
      own.requests.push_back(std::move(saved));
    }
  }
  return journal_->Compact(WriteSnapshot(own));
}

absl::Status SessionRegistry::UseStore(SessionStore* store, std::unique_ptr<SessionJournal> own) {
  MutexLock lock(&change_mutex_);
  store_ = store;
  journal_ = std::move(own);
  // The first start.
  if (journal_->is_empty()) return journal_->Compact(WriteSnapshot(SavedSession()));
  return absl::OkStatus();
}

void SessionRegistry::Adopt(std::shared_ptr<SessionEntry> entry) {
  entry->fence = fence_;
  MutexLock lock(&mutex_);
  Insert(entry);
}

void SessionRegistry::CountUnnamed() {
  MutexLock lock(&mutex_);
  ++num_unnamed_;
}

void SessionRegistry::AdoptRequest(const RequestTable::Saved& saved,
                                   std::shared_ptr<StoredAnswer> answer) {
  MutexLock lock(&change_mutex_);
  const auto [tenant, request_id] = SplitTenant(saved.request_id);
  RequestsOf(tenant).Restore({request_id, saved.content, saved.answer}, std::move(answer));
}

absl::StatusOr<std::shared_ptr<StoredAnswer>> SessionRegistry::DecodeCreate(ByteReader* reader) {
  std::string session_id;
  LETHE_RETURN_IF_ERROR(reader->String(&session_id));
  return std::make_shared<CreateAnswer>(std::move(session_id));
}

absl::StatusOr<std::shared_ptr<StoredAnswer>> SessionRegistry::DecodeDelete(ByteReader* reader) {
  int64_t num_inputs = 0;
  LETHE_RETURN_IF_ERROR(reader->I64(&num_inputs));
  return std::make_shared<DeleteAnswer>(num_inputs);
}

int64_t SessionRegistry::num_sessions() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(sessions_.size());
}

}  // namespace lethe
