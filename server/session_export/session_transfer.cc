#include "server/session_export/session_transfer.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/model/model.h"
#include "server/model/numerics_id.h"
#include "server/session_export/export_stream.h"
#include "server/session_registry/durable_entry.h"

namespace lethe {
namespace {

// The plain file of the present state.
std::string EncodeEntry(const SessionEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex) {
  const SavedSession saved = SaveEntry(entry);
  ExportedSession exported;
  exported.display_name = saved.display_name;
  exported.model = saved.model;
  exported.vectors = saved.vectors;
  exported.selected = saved.selected;
  exported.numerics_id = saved.numerics_id;
  exported.device_kind = saved.device_kind;
  exported.state_digest = entry.session->Digest();
  exported.next_token_id = saved.counters.next_token_id;
  return EncodeExport(exported, entry.session->inputs(), VectorRowsOf(entry));
}

absl::StatusOr<std::string> TakeExport(const Call& call, ComputeScheduler* scheduler,
                                       SessionEntry* entry) {
  FairMutexLock lock(&entry->mutex);
  LETHE_RETURN_IF_ERROR(entry->LiveSession().status());
  // Half of an Append is nobody's state.
  LETHE_RETURN_IF_ERROR(entry->BeginWrite());
  entry->EndWrite();
  LETHE_ASSIGN_OR_RETURN(const ComputeSlot slot, scheduler->Acquire(call));
  std::string plain = EncodeEntry(*entry);
  if (plain.size() > kExportBytesMax) {
    audit::SecureWipe(&plain);
    return WithErrorInfo(absl::ResourceExhaustedError(absl::StrCat(
                             "session_id: an export takes at most ", kExportBytesMax, " bytes")),
                         {"EXPORT_TOO_LARGE",
                          {{"field", "session_id"}, {"bytes_max", absl::StrCat(kExportBytesMax)}}});
  }
  ++entry->num_exports;
  if (const absl::Status counted = StoreCounters(entry); !counted.ok()) {
    --entry->num_exports;
    audit::SecureWipe(&plain);
    return counted;
  }
  entry->Publish();
  return plain;
}

absl::StatusOr<std::shared_ptr<const Model>> ModelOf(const ExportedSession& exported,
                                                     const ModelSet& models) {
  for (const auto& [name, model] : models.models()) {
    if (model->digest() == exported.model->digest) return model;
  }
  return WithErrorInfo(
      absl::FailedPreconditionError(
          "data: the session is of a model that is not loaded here, or with other weights"),
      {"MODEL_NOT_LOADED", {{"field", "data"}}});
}

absl::Status WithContentReason(const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return status;
  return WithErrorInfo(absl::InvalidArgumentError(absl::StrCat("data: ", status.message())),
                       {"EXPORT_CONTENT", {{"field", "data"}}});
}

absl::StatusOr<NewSession> OptionsOf(const ExportedSession& exported, const ImportTools& tools) {
  NewSession wanted;
  if (exported.model.has_value()) {
    LETHE_ASSIGN_OR_RETURN(wanted.model, ModelOf(exported, *tools.models));
    wanted.options.memory = exported.model->memory;
    wanted.options.stored_input_bytes = tools.stored_input_bytes;
    return wanted;
  }
  wanted.vectors = exported.vectors;
  wanted.vectors.max_inputs = tools.max_vectors;
  if (exported.history.inputs.size() > tools.max_vectors) {
    return WithErrorInfo(absl::ResourceExhaustedError(
                             absl::StrCat("data: want at most ", tools.max_vectors, " vectors")),
                         {"TOO_MANY_VECTORS", {{"field", "data"}}});
  }
  return wanted;
}

// A session keeps its kind: who calls it by its id would meet another one. Placed behind the ids that the session to be
// replaced gave out.
absl::StatusOr<uint64_t> PlaceBehind(const std::string& tenant, const std::string& session_id,
                                     const ImportTools& tools, ExportedSession* exported) {
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<SessionEntry> old,
                         tools.sessions->Find(tenant, session_id));
  FairMutexLock lock(&old->mutex);
  LETHE_RETURN_IF_ERROR(old->LiveSession().status());
  LETHE_RETURN_IF_ERROR(exported->model.has_value() ? old->CheckHasModel()
                                                    : old->CheckHasVectors());
  const uint64_t first = CountersOf(*old).next_token_id;
  if (first > kImportedTokenIdMax) {
    return WithErrorInfo(
        absl::ResourceExhaustedError("session_id: the session has no token ids left"),
        {"TOKEN_IDS_EXHAUSTED", {{"field", "session_id"}}});
  }
  MoveTokenIds(first - 1, exported);
  return first;
}

// The whole history is evaluated, in one hold of a slot.
absl::StatusOr<std::unique_ptr<AnySession>> Evaluate(const NewSession& wanted,
                                                     ExportedSession exported) {
  DecodedInputs& history = exported.history;
  if (wanted.model != nullptr) {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Rebuild(
        wanted.model, wanted.options, std::move(history.inputs), exported.next_token_id);
    if (!session.ok()) return WithContentReason(session.status());
    return std::unique_ptr<AnySession>(*std::move(session));
  }
  StoredVectors vectors;
  vectors.inputs = std::move(history.inputs);
  vectors.keys = std::move(history.keys);
  vectors.values = std::move(history.values);
  vectors.next_token_id = exported.next_token_id;
  vectors.selected = exported.selected;
  absl::StatusOr<std::unique_ptr<VectorSession>> session =
      VectorSession::Rebuild(wanted.vectors, std::move(vectors));
  if (!session.ok()) return WithContentReason(session.status());
  return std::unique_ptr<AnySession>(*std::move(session));
}

}  // namespace

absl::Status ExportSession(const audit::Secret32& key, const Call& call,
                           ComputeScheduler* scheduler, const std::shared_ptr<SessionEntry>& entry,
                           const std::function<absl::Status(std::string)>& sink) {
  LETHE_ASSIGN_OR_RETURN(std::string plain, TakeExport(call, scheduler, entry.get()));
  const absl::Status sealed = SealExport(key, plain, [&](std::string piece) -> absl::Status {
    LETHE_RETURN_IF_ERROR(call.Check());
    return sink(std::move(piece));
  });
  audit::SecureWipe(&plain);
  return sealed;
}

absl::StatusOr<ImportReceipt> ImportSession(ExportedSession exported, const ImportCommand& command,
                                            const Call& call, const ImportTools& tools) {
  LETHE_ASSIGN_OR_RETURN(const NewSession wanted, OptionsOf(exported, tools));
  ImportReceipt receipt;
  receipt.exported_digest = exported.state_digest;
  receipt.reevaluated =
      NumericsOf(wanted.model.get()) != Numerics{exported.numerics_id, exported.device_kind};
  ImportedSession imported;
  imported.tenant = call.principal().tenant;
  imported.display_name =
      command.display_name.empty() ? exported.display_name : command.display_name;
  if (!command.session_id.empty()) {
    LETHE_ASSIGN_OR_RETURN(imported.token_ids_from,
                           PlaceBehind(imported.tenant, command.session_id, tools, &exported));
  }
  {
    LETHE_ASSIGN_OR_RETURN(const ComputeSlot slot, tools.scheduler->Acquire(call));
    LETHE_ASSIGN_OR_RETURN(imported.session, Evaluate(wanted, std::move(exported)));
    receipt.digest = imported.session->Digest();
  }
  imported.is_model = wanted.model != nullptr;
  if (!receipt.reevaluated && receipt.digest != receipt.exported_digest) {
    return WithErrorInfo(
        absl::DataLossError("data: the state evaluated here is not the one that was exported"),
        {"DIGEST_MISMATCH", {{"field", "data"}}});
  }
  LETHE_RETURN_IF_ERROR(call.Check());
  LETHE_ASSIGN_OR_RETURN(
      receipt.entry,
      tools.sessions->Import(std::move(imported), command.session_id, command.request));
  return receipt;
}

}  // namespace lethe
