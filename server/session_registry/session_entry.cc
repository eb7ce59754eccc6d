#include "server/session_registry/session_entry.h"

#include <utility>

#include "memory/svdd/sv_memory.h"
#include "server/error/error_info.h"

namespace lethe {
namespace {

int64_t CountSupportVectors(const ModelState& state) {
  int64_t count = 0;
  for (const ModelState::SvGroup& group : state.SvGroups()) {
    for (int64_t head = 0; head < group.memory->num_heads(); ++head) {
      for (const svdd::Partition key_class : group.memory->head(head).solution->classes) {
        if (key_class != svdd::Partition::kReserve) ++count;
      }
    }
  }
  return count;
}

}  // namespace

absl::Status SessionDeletedError() {
  return WithErrorInfo(absl::AbortedError("session_id: the session was deleted meanwhile"),
                       {"SESSION_DELETED", {{"field", "session_id"}}});
}

SessionEntry::SessionEntry(std::string id, std::string name, std::unique_ptr<Session> new_session,
                           int64_t now_us)
    : session_id(std::move(id)),
      display_name(std::move(name)),
      create_time_us(now_us),
      model(new_session->shared_model()),
      options(new_session->options()),
      session(std::move(new_session)) {
  FairMutexLock lock(&mutex);
  Publish();
}

absl::StatusOr<Session*> SessionEntry::LiveSession() {
  if (session == nullptr) return SessionDeletedError();
  return session.get();
}

absl::Status SessionEntry::BeginWrite() {
  if (writing) {
    return WithErrorInfo(
        absl::AbortedError("session_id: a remembered Generate or an Append of this session is "
                           "running; retry when it has ended, or generate with remember = false"),
        {"SESSION_BUSY", {{"field", "session_id"}}});
  }
  writing = true;
  return absl::OkStatus();
}

std::vector<std::shared_ptr<SessionFork>> SessionEntry::LiveForks() {
  std::vector<std::shared_ptr<SessionFork>> live;
  for (const std::weak_ptr<SessionFork>& fork : forks) {
    if (std::shared_ptr<SessionFork> held = fork.lock()) live.push_back(std::move(held));
  }
  forks.assign(live.begin(), live.end());
  return live;
}

void SessionEntry::Publish() {
  SessionInfo info;
  info.num_forgotten = mark.num_forgotten;
  info.audit_seq = record_refs.empty() ? 0 : record_refs.back().seq;
  if (session != nullptr) {
    const SessionBytes bytes = session->bytes();
    info.num_inputs = session->num_tokens();
    info.state_bytes = static_cast<int64_t>(bytes.state + bytes.inputs);
    info.snapshot_bytes = static_cast<int64_t>(bytes.snapshots);
    info.stored_input_bytes = static_cast<int64_t>(bytes.stored_inputs);
    info.num_snapshots = static_cast<int64_t>(session->snapshot_ranks().size());
    info.num_support_vectors = CountSupportVectors(session->state());
  }
  MutexLock lock(&info_mutex_);
  info_ = info;
}

void SessionEntry::PublishLength() {
  const int64_t num_inputs = session == nullptr ? 0 : session->num_tokens();
  MutexLock lock(&info_mutex_);
  info_.num_inputs = num_inputs;
}

SessionInfo SessionEntry::Info() const {
  MutexLock lock(&info_mutex_);
  return info_;
}

}  // namespace lethe
