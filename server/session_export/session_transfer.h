// ExportSession, ImportSession: a session as an encrypted file and back.
//
// Equation:  an imported session has the state digest of the exported one (contract C1) wherever model, numerics id and
//            device kind are the same.
// Shapes:    export_stream.h, export_content.h.
// Units:     none.
// Requires:  none.
// Rejects:   ExportSession: ABORTED, reason SESSION_BUSY, while inputs come in; RESOURCE_EXHAUSTED, reason
//            EXPORT_TOO_LARGE; what `sink` and the call say; reason SESSION_STORE. ImportSession: FAILED_PRECONDITION,
//            reasons MODEL_NOT_LOADED (no loaded model has the exported one's digest), WRONG_SESSION_KIND (the session to be
//            replaced is of vectors and the exported one of a model, or the other way round) and SUBJECT_BEING_FORGOTTEN;
//            INVALID_ARGUMENT, reason EXPORT_CONTENT: no history of the model or vector session; DATA_LOSS, reason
//            DIGEST_MISMATCH: the state has another digest than the file says; RESOURCE_EXHAUSTED, reason
//            TOO_MANY_VECTORS; what SessionRegistry::Import rejects. On every error nothing has changed.
// Effects:   ExportSession counts the export, durably, before the first byte is given out: a later Forget does not reach
//            it. The session's records, openings and answers to repeats are not in the file. ImportSession keeps what it
//            was given once everything was evaluated and compared. token_ids stay what they were; in place of a session they
//            move behind those that it gave out, so that none is given out twice.
// Numerics:  an import evaluates the whole history.
// Threads:   safe.
#ifndef LETHE_SERVER_SESSION_EXPORT_SESSION_TRANSFER_H_
#define LETHE_SERVER_SESSION_EXPORT_SESSION_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "audit/crypto/secret.h"
#include "server/scheduler/compute_scheduler.h"
#include "server/session_export/export_content.h"
#include "server/session_registry/model_set.h"
#include "server/session_registry/session_registry.h"

namespace lethe {

absl::Status ExportSession(const audit::Secret32& key, const Call& call,
                           ComputeScheduler* scheduler, const std::shared_ptr<SessionEntry>& entry,
                           const std::function<absl::Status(std::string)>& sink);

struct ImportTools {
  SessionRegistry* sessions = nullptr;
  ComputeScheduler* scheduler = nullptr;
  const ModelSet* models = nullptr;
  size_t stored_input_bytes = kDefaultStoredInputBytes;
  int64_t max_vectors = 65'536;
};

struct ImportCommand {
  std::string session_id;    // to replace; empty: a new session
  std::string display_name;  // empty: the exported one
  RequestKey request;
};

struct ImportReceipt {
  std::shared_ptr<SessionEntry> entry;
  audit::Sha256Digest digest{};
  audit::Sha256Digest exported_digest{};
  bool reevaluated = false;  // under another numerics id or device kind
};

absl::StatusOr<ImportReceipt> ImportSession(ExportedSession exported, const ImportCommand& command,
                                            const Call& call, const ImportTools& tools);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_EXPORT_SESSION_TRANSFER_H_
