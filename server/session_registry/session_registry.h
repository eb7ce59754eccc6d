// SessionRegistry: the sessions of this server by id.
//
// Equation:  none.
// Shapes:    session_id: 26 characters of [a-z2-7], 130 bits, from the system's randomness.
// Units:     none.
// Requires:  none.
// Rejects:   Find, Delete: NOT_FOUND, reason SESSION_NOT_FOUND. Create: RESOURCE_EXHAUSTED, reason
//            TOO_MANY_SESSIONS, at the limit; what Session::Create rejects. All with a RequestKey:
//            as RequestTable::Find.
// Effects:   Delete destroys the session's state, its forks' and its openings before it returns;
//            work that still holds the entry sees LiveSession fail.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_SESSION_REGISTRY_SESSION_REGISTRY_H_
#define LETHE_SERVER_SESSION_REGISTRY_SESSION_REGISTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"

#include "kernels/base/mutex.h"
#include "server/session_registry/request_table.h"
#include "server/session_registry/session_entry.h"
#include "server/vector_session/vector_session.h"

namespace lethe {

struct NewSession {
  std::shared_ptr<const Model> model;  // null: a vector session
  SessionOptions options;              // with a model
  std::string display_name;
  VectorOptions vectors = {};  // without a model
};

class SessionRegistry {
 public:
  explicit SessionRegistry(int64_t max_sessions) : max_sessions_(max_sessions) {}

  absl::StatusOr<std::shared_ptr<SessionEntry>> Create(const NewSession& wanted,
                                                       const RequestKey& request);
  absl::StatusOr<std::shared_ptr<SessionEntry>> Find(const std::string& session_id) const;
  // At most max_count sessions with an id greater than `after`, by id.
  std::vector<std::shared_ptr<SessionEntry>> List(const std::string& after, size_t max_count) const;
  // Returns how many inputs the session held.
  absl::StatusOr<int64_t> Delete(const std::string& session_id, const RequestKey& request);

  int64_t num_sessions() const;

 private:
  // Serialises creations and deletions, so that two calls with one request_id have one effect.
  Mutex change_mutex_;
  RequestTable requests_ ABSL_GUARDED_BY(change_mutex_);

  const int64_t max_sessions_;
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<SessionEntry>> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_SESSION_REGISTRY_H_
