#include "server/session_registry/session_entry.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "server/diagnostics/log.h"
#include "server/error/error_info.h"

namespace lethe {

int64_t NowSteadyMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

absl::Status SessionDeletedError() {
  return WithErrorInfo(absl::AbortedError("session_id: the session was deleted meanwhile"),
                       {"SESSION_DELETED", {{"field", "session_id"}}});
}

absl::Status QuarantinedError(const std::string& session_id) {
  return WithErrorInfo(
      absl::DataLossError("session_id: what is stored of the session is damaged; it stays on disk "
                          "and is not served, and can be deleted"),
      {"SESSION_QUARANTINED", {{"field", "session_id"}, {"session_id", session_id}}});
}

absl::Status ModelNotLoadedError(const std::string& session_id, const std::string& model) {
  return WithErrorInfo(
      absl::FailedPreconditionError("session_id: the session waits on disk: its model is not "
                                    "loaded, or with other weights"),
      {"MODEL_NOT_LOADED",
       {{"field", "session_id"}, {"session_id", session_id}, {"model", model}}});
}

absl::Status WrongSessionKindError(absl::string_view want) {
  return WithErrorInfo(
      absl::FailedPreconditionError(absl::StrCat("session_id: this call needs ", want)),
      {"WRONG_SESSION_KIND", {{"field", "session_id"}}});
}

SessionEntry::SessionEntry(std::string id, std::string name, std::unique_ptr<Session> new_session,
                           int64_t now_us, std::string owner)
    : session_id(std::move(id)),
      tenant(std::move(owner)),
      display_name(std::move(name)),
      create_time_us(now_us),
      model(new_session->shared_model()),
      options(new_session->options()),
      session(std::move(new_session)) {
  FairMutexLock lock(&mutex);
  Publish();
}

SessionEntry::SessionEntry(std::string id, std::string name,
                           std::unique_ptr<VectorSession> new_session, int64_t now_us,
                           std::string owner)
    : session_id(std::move(id)),
      tenant(std::move(owner)),
      display_name(std::move(name)),
      create_time_us(now_us),
      vector_options(new_session->options()),
      session(std::move(new_session)) {
  FairMutexLock lock(&mutex);
  Publish();
}

SessionEntry::SessionEntry(Stored stored)
    : session_id(std::move(stored.id)),
      tenant(std::move(stored.tenant)),
      display_name(std::move(stored.name)),
      create_time_us(stored.create_time_us),
      model(std::move(stored.model)),
      options(stored.options),
      vector_options(stored.vector_options),
      journal(std::move(stored.journal)),
      unavailable_(std::move(stored.unavailable)) {}

absl::Status SessionEntry::Availability() const {
  MutexLock lock(&info_mutex_);
  return unavailable_;
}

void SessionEntry::Quarantine(const absl::Status& cause) {
  LogError(absl::StrCat("stored session ", journal->number(),
                        " is damaged and stays on disk unserved: ", cause.message()));
  restore = nullptr;
  MutexLock lock(&info_mutex_);
  unavailable_ = QuarantinedError(session_id);
}

absl::Status SessionEntry::CheckStored() {
  if (session != nullptr || !restore) return Availability();
  const absl::Status status = journal->ReadInputs().status();
  if (!absl::IsDataLoss(status)) return status;
  Quarantine(status);
  return Availability();
}

void SessionEntry::Clear() {
  session.reset();
  restore = nullptr;
  for (const std::shared_ptr<SessionFork>& fork : LiveForks()) {
    FairMutexLock fork_lock(&fork->mutex);
    fork->session.reset();
  }
  records.DestroyOpenings();
  requests = RequestTable();
  {
    MutexLock lock(&info_mutex_);
    unavailable_ = absl::OkStatus();
  }
  Publish();
}

absl::Status SessionEntry::CheckHasModel() const {
  return model != nullptr ? absl::OkStatus() : WrongSessionKindError("a session of a model");
}

absl::Status SessionEntry::CheckHasVectors() const {
  return model == nullptr ? absl::OkStatus() : WrongSessionKindError("a vector session");
}

absl::StatusOr<AnySession*> SessionEntry::LiveSession() {
  last_use_us_ = NowSteadyMicros();
  if (session == nullptr) LETHE_RETURN_IF_ERROR(Availability());
  if (session == nullptr && restore) {
    absl::StatusOr<std::unique_ptr<AnySession>> restored = restore();
    if (absl::IsDataLoss(restored.status())) {
      Quarantine(restored.status());
      return Availability();
    }
    if (!restored.ok()) return WithDefaultReason(restored.status(), "SESSION_STORE");
    session = *std::move(restored);
    if (on_restored) {
      if (absl::Status status = on_restored(this); !status.ok()) {
        session.reset();
        return status;
      }
      on_restored = nullptr;
    }
    restore = nullptr;
    Publish();
  }
  if (session == nullptr) return SessionDeletedError();
  return session.get();
}

absl::StatusOr<Session*> SessionEntry::LiveModelSession() {
  if (session == nullptr) LETHE_RETURN_IF_ERROR(Availability());
  LETHE_RETURN_IF_ERROR(CheckHasModel());
  LETHE_RETURN_IF_ERROR(LiveSession().status());
  return static_cast<Session*>(session.get());
}

absl::StatusOr<VectorSession*> SessionEntry::LiveVectorSession() {
  if (session == nullptr) LETHE_RETURN_IF_ERROR(Availability());
  LETHE_RETURN_IF_ERROR(CheckHasVectors());
  LETHE_RETURN_IF_ERROR(LiveSession().status());
  return static_cast<VectorSession*>(session.get());
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

absl::StatusOr<std::shared_ptr<LabelledWriter>> SessionEntry::AdmitWriter(
    const std::string& subject) {
  if (subject.empty()) return std::shared_ptr<LabelledWriter>();
  if (fence != nullptr) LETHE_RETURN_IF_ERROR(fence->Check(tenant, subject));
  writers.erase(std::remove_if(writers.begin(), writers.end(),
                               [](const auto& writer) { return writer.expired(); }),
                writers.end());
  auto writer = std::make_shared<LabelledWriter>(subject);
  writers.push_back(writer);
  return writer;
}

void SessionEntry::StopWriters(absl::string_view subject) {
  if (FaultActive(Fault::kWritersGoOn)) return;
  for (const std::weak_ptr<LabelledWriter>& held : writers) {
    const std::shared_ptr<LabelledWriter> writer = held.lock();
    if (writer != nullptr && writer->subject == subject) writer->stopped = true;
  }
}

std::vector<std::shared_ptr<SessionFork>> SessionEntry::LiveForks() {
  std::vector<std::shared_ptr<SessionFork>> live;
  for (const std::weak_ptr<SessionFork>& fork : forks) {
    if (std::shared_ptr<SessionFork> held = fork.lock()) live.push_back(std::move(held));
  }
  forks.assign(live.begin(), live.end());
  return live;
}

bool SessionEntry::IsPresent(const RecordRef& ref) const {
  return session != nullptr && ref.seq == record_refs.back().seq && ref.mark.epoch == mark.epoch &&
         ref.num_inputs == session->num_tokens();
}

void SessionEntry::Publish() {
  SessionInfo info;
  info.num_forgotten = mark.num_forgotten;
  info.num_exports = num_exports;
  info.audit_seq = record_refs.empty() ? 0 : record_refs.back().seq;
  if (session != nullptr) {
    const SessionBytes bytes = session->bytes();
    info.num_inputs = session->num_tokens();
    info.state_bytes = static_cast<int64_t>(bytes.state + bytes.inputs);
    info.snapshot_bytes = static_cast<int64_t>(bytes.snapshots);
    info.stored_input_bytes = static_cast<int64_t>(bytes.stored_inputs);
    if (vector_options.has_value()) {
      const auto& vectors = static_cast<const VectorSession&>(*session);
      info.epoch = vectors.epoch();
      info.num_slow_solves = vectors.slow_solves();
    }
    info.num_snapshots = static_cast<int64_t>(session->snapshot_ranks().size());
    info.num_support_vectors = session->num_support_vectors();
  } else if (restore || !Availability().ok()) {
    // What is known of one that left memory stays known; it costs nothing there.
    const SessionInfo last = Info();
    info.num_inputs = journal->num_inputs();
    info.num_support_vectors = last.num_support_vectors;
    info.epoch = last.epoch;
    info.num_slow_solves = last.num_slow_solves;
  }
  MutexLock lock(&info_mutex_);
  info_ = info;
  for (size_t i = record_leaves_.size(); i < record_refs.size(); ++i) {
    record_leaves_.push_back(record_refs[i].leaf_index);
  }
}

void SessionEntry::PublishLength() {
  const int64_t num_inputs = session == nullptr ? 0 : session->num_tokens();
  MutexLock lock(&info_mutex_);
  info_.num_inputs = num_inputs;
}

std::vector<uint64_t> SessionEntry::RecordLeaves() const {
  MutexLock lock(&info_mutex_);
  return record_leaves_;
}

SessionInfo SessionEntry::Info() const {
  MutexLock lock(&info_mutex_);
  return info_;
}

}  // namespace lethe
