// SessionRegistry: the sessions of this server by id.
//
// Equation:  none.
// Shapes:    session_id: 26 characters of [a-z2-7], 130 bits, from the system's randomness.
// Units:     none.
// Requires:  none.
// Rejects:   Find, Delete: NOT_FOUND, reason SESSION_NOT_FOUND, for another tenant's session too. Create: RESOURCE_EXHAUSTED, reason
//            TOO_MANY_SESSIONS, at a limit; what Session::Create rejects. Import: likewise; with an id to replace
//            NOT_FOUND, reason SESSION_NOT_FOUND, and ABORTED, reason SESSION_BUSY, while a writer runs there, or
//            SESSION_CHANGED, when one came since token_ids_from was looked up;
//            FAILED_PRECONDITION, reason SUBJECT_BEING_FORGOTTEN. All with a RequestKey:
//            as RequestTable::Find, among the tenant's. Create, Delete: reason SESSION_STORE when the store takes no change.
// Effects:   Delete destroys the session's state, its forks' and its openings before it returns;
//            work that still holds the entry sees LiveSession fail. With a store both are durable, and what Delete
//            destroys is erased there, before they return.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_SESSION_REGISTRY_SESSION_REGISTRY_H_
#define LETHE_SERVER_SESSION_REGISTRY_SESSION_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "kernels/base/mutex.h"
#include "server/identity/principal.h"
#include "server/session_registry/request_table.h"
#include "server/session_registry/session_entry.h"
#include "server/vector_session/vector_session.h"

namespace lethe {

// 26 characters of [a-z2-7] from the system's randomness.
std::string RandomId();

struct NewSession {
  std::shared_ptr<const Model> model;  // null: a vector session
  SessionOptions options;              // with a model
  std::string display_name;
  VectorOptions vectors = {};  // without a model
  std::string tenant = kLocalTenant;
};

// A session that was evaluated elsewhere than in an entry.
struct ImportedSession {
  std::unique_ptr<AnySession> session;
  bool is_model = false;        // a Session; else a VectorSession
  uint64_t token_ids_from = 1;  // in place of a session: ids from here on were not given out there
  std::string display_name;
  std::string tenant = kLocalTenant;  // of the new session, or of the one to be replaced
};

class SessionRegistry {
 public:
  explicit SessionRegistry(int64_t max_sessions) : max_sessions_(max_sessions) {}

  absl::StatusOr<std::shared_ptr<SessionEntry>> Create(const NewSession& wanted,
                                                       const RequestKey& request);
  // A new session, or, with an id, in the place of that one: whoever still holds the old entry sees it deleted; the
  // numbering of its records goes on, their openings are destroyed. Durable, and atomic, before it returns.
  absl::StatusOr<std::shared_ptr<SessionEntry>> Import(ImportedSession imported,
                                                       const std::string& replaced_id,
                                                       const RequestKey& request);
  absl::StatusOr<std::shared_ptr<SessionEntry>> Find(absl::string_view tenant,
                                                     const std::string& session_id) const;
  // At most max_count sessions of the tenant with an id greater than `after`, by id.
  std::vector<std::shared_ptr<SessionEntry>> List(absl::string_view tenant,
                                                  const std::string& after, size_t max_count) const;
  // Returns how many inputs the session held.
  absl::StatusOr<int64_t> Delete(absl::string_view tenant, const std::string& session_id,
                                 const RequestKey& request);
  // The same whosever the session is: for the server's own work, never for a call's.
  absl::StatusOr<std::shared_ptr<SessionEntry>> Find(const std::string& session_id) const;
  std::vector<std::shared_ptr<SessionEntry>> List(const std::string& after, size_t max_count) const;
  absl::StatusOr<int64_t> Delete(const std::string& session_id, const RequestKey& request);

  // Before the first call: how many of one tenant; 0: as many as there may be of all.
  void LimitTenants(int64_t max_tenant_sessions) { max_tenant_sessions_ = max_tenant_sessions; }

  int64_t num_sessions() const;
  // Which labels no session takes inputs under.
  SubjectFence* fence() { return fence_.get(); }
  // As SubjectFence::Close; sessions that List gives afterwards are all that may hold the label.
  void CloseSubject(absl::string_view tenant, absl::string_view subject);

  // Before the first call: sessions are stored from now on. `own`: the journal of the registry's requests.
  absl::Status UseStore(SessionStore* store, std::unique_ptr<SessionJournal> own);
  // Likewise: where deletions are kept.
  void UseLedger(ErasureLedger* ledger) { ledger_ = ledger; }
  // Before the first call: a stored session, and a request that a stored answer answers.
  void Adopt(std::shared_ptr<SessionEntry> entry);
  // A stored session that is damaged, its name with it: why an id may not be found.
  void CountUnnamed();
  void AdoptRequest(const RequestTable::Saved& saved, std::shared_ptr<StoredAnswer> answer);
  // Answers of Create and Delete; what follows the kind.
  static absl::StatusOr<std::shared_ptr<StoredAnswer>> DecodeCreate(ByteReader* reader);
  static absl::StatusOr<std::shared_ptr<StoredAnswer>> DecodeDelete(ByteReader* reader);

 private:
  absl::Status StoreNew(const RequestKey& request, const StoredAnswer& answer, SessionEntry* entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  // Destroys everything that the session holds and returns how many inputs those were.
  absl::StatusOr<int64_t> Destroy(const RequestKey& request, SessionEntry* entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  // With the ledger's entry before it.
  absl::Status DestroyStored(const RequestKey& request, std::string own_delta, SessionEntry* entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  absl::Status CheckRoom(absl::string_view tenant) const;
  RequestTable& RequestsOf(absl::string_view tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  void Insert(const std::shared_ptr<SessionEntry>& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<SessionEntry>> Replace(ImportedSession imported,
                                                        const std::shared_ptr<SessionEntry>& old,
                                                        const RequestKey& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  absl::Status StoreImported(const RequestKey& request, SessionEntry* entry, SessionEntry* old)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);
  absl::Status CompactOwn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(change_mutex_);

  // Serialises creations and deletions, so that two calls with one request_id have one effect.
  Mutex change_mutex_;
  std::map<std::string, RequestTable, std::less<>> requests_
      ABSL_GUARDED_BY(change_mutex_);  // by tenant

  SessionStore* store_ = nullptr;
  ErasureLedger* ledger_ = nullptr;
  std::unique_ptr<SessionJournal> journal_;  // of requests_

  const std::shared_ptr<SubjectFence> fence_ = std::make_shared<SubjectFence>();
  const int64_t max_sessions_;
  int64_t max_tenant_sessions_ = 0;
  mutable Mutex mutex_;
  using ById = std::map<std::string, std::shared_ptr<SessionEntry>>;
  ById sessions_ ABSL_GUARDED_BY(mutex_);
  // The same ones. A tenant's lookup never meets another's: what is foreign takes the time of what does not exist.
  std::map<std::string, ById, std::less<>> by_tenant_ ABSL_GUARDED_BY(mutex_);
  int64_t num_unnamed_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_SESSION_REGISTRY_H_
