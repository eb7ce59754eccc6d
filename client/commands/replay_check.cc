#include "client/commands/replay_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/commands/report.h"
#include "client/commands/vector_calls.h"

#include "audit/certificate/commitment.h"
#include "audit/crypto/sha256.h"
#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

constexpr size_t kInputsPerCall = 16384;

absl::string_view AsText(const audit::Sha256Digest& hash) {
  return absl::string_view(reinterpret_cast<const char*>(hash.data()), hash.size());
}

absl::Status Append(Client& fresh, const std::string& session_id, const InputsFile& inputs,
                    const ReplayProgress& progress) {
  for (size_t done = 0; done < inputs.vocab_ids.size();) {
    const size_t count = std::min(kInputsPerCall, inputs.vocab_ids.size() - done);
    v1::AppendRequest request;
    request.set_session_id(session_id);
    const auto first = inputs.vocab_ids.begin() + static_cast<std::ptrdiff_t>(done);
    request.mutable_input()->mutable_vocab_ids()->mutable_vocab_ids()->Add(
        first, first + static_cast<std::ptrdiff_t>(count));
    LETHE_RETURN_IF_ERROR(fresh.Append(request).status());
    done += count;
    progress(done);
  }
  return absl::OkStatus();
}

absl::Status AppendVectors(Client& fresh, const std::string& session_id, const VectorRows& rows,
                           const ReplayProgress& progress) {
  v1::AppendVectorsRequest request;
  request.set_session_id(session_id);
  v1::AppendVectorsResponse appended;
  return AppendRows(
      fresh, request, rows,
      [&progress](int64_t num_done) { progress(static_cast<size_t>(num_done)); }, &appended);
}

absl::StatusOr<ReplayResult> AppendAndDigest(Client& fresh, const std::string& session_id,
                                             const InputsFile& inputs,
                                             const ReplayProgress& progress) {
  LETHE_RETURN_IF_ERROR(inputs.vectors
                            ? AppendVectors(fresh, session_id, inputs.vectors->rows, progress)
                            : Append(fresh, session_id, inputs, progress));
  v1::GetStateDigestRequest request;
  request.set_session_id(session_id);
  request.set_include_parts(true);
  LETHE_ASSIGN_OR_RETURN(const v1::GetStateDigestResponse response, fresh.GetStateDigest(request));
  ReplayResult result;
  LETHE_ASSIGN_OR_RETURN(result.digest, DigestFromProto(response.digest()));
  result.num_inputs = response.num_inputs();
  return result;
}

absl::StatusOr<v1::Session> CreateOnModel(Client& fresh, const InputsFile& inputs) {
  LETHE_ASSIGN_OR_RETURN(const v1::ListModelsResponse models,
                         fresh.ListModels(v1::ListModelsRequest()));
  // A model directory may carry another name than the model had on the certifying server; what must
  // agree is its digest, which CompareReplay checks.
  v1::CreateSessionRequest create;
  for (const v1::Model& candidate : models.models()) {
    if (models.models_size() == 1 || candidate.name() == inputs.model) {
      create.set_model(candidate.name());
    }
  }
  *create.mutable_memory_options() = inputs.memory_options;
  LETHE_ASSIGN_OR_RETURN(const v1::CreateSessionResponse created, fresh.CreateSession(create));
  return created.session();
}

absl::StatusOr<v1::Session> CreateForVectors(Client& fresh, const v1::VectorOptions& options) {
  v1::CreateVectorSessionRequest create;
  *create.mutable_options() = options;
  LETHE_ASSIGN_OR_RETURN(const v1::CreateVectorSessionResponse created,
                         fresh.CreateVectorSession(create));
  return created.session();
}

// Whether the replayed state's part of this name has these bytes.
bool PartIs(const DigestFile& digest, absl::string_view name, absl::string_view bytes) {
  const audit::Sha256Digest hash = audit::Sha256Of(bytes);
  return std::any_of(digest.parts.begin(), digest.parts.end(), [&](const audit::StatePart& part) {
    return part.name == name && part.hash == hash;
  });
}

}  // namespace

absl::StatusOr<ReplayResult> RebuildDigest(Client& fresh, const InputsFile& inputs,
                                           const ReplayProgress& progress) {
  LETHE_ASSIGN_OR_RETURN(const v1::Session session,
                         inputs.vectors ? CreateForVectors(fresh, inputs.vectors->options)
                                        : CreateOnModel(fresh, inputs));
  absl::StatusOr<ReplayResult> result =
      AppendAndDigest(fresh, session.session_id(), inputs, progress);
  v1::DeleteSessionRequest remove;
  remove.set_session_id(session.session_id());
  const absl::Status deleted = fresh.DeleteSession(remove).status();
  LETHE_RETURN_IF_ERROR(result.status());
  LETHE_RETURN_IF_ERROR(deleted);
  result->model = session.model();
  return result;
}

absl::Status CompareReplay(const ReplayClaim& claim, const ReplayResult& replay) {
  const audit::EngineIdentity& engine = claim.statement.engine;
  if (!PartIs(replay.digest, "model", AsText(engine.model_digest))) {
    return absl::DataLossError(
        absl::StrCat("replay used another model, or other parameters of a vector session, than the "
                     "certificate names (want model digest ",
                     FormatHex(AsText(engine.model_digest)), ")"));
  }
  if (!PartIs(replay.digest, "device", engine.device_kind)) {
    return absl::DataLossError(
        absl::StrCat("replay ran on another device kind than the certificate names (want ",
                     engine.device_kind, ")"));
  }
  if (!PartIs(replay.digest, "numerics", AsText(engine.numerics_id))) {
    return absl::DataLossError(
        "this build computes with another numerics id than the certificate names: its digests "
        "cannot be compared");
  }
  if (!claim.parts.empty()) {
    const std::string difference = audit::ExplainDifference(claim.parts, replay.digest.parts);
    if (!difference.empty()) {
      return absl::DataLossError(absl::StrCat("the replayed state differs: ", difference));
    }
  }
  if (claim.opening.state_digest != replay.digest.digest) {
    return absl::DataLossError(absl::StrCat(
        "the replayed state differs: digest ", FormatHex(AsText(replay.digest.digest)), ", want ",
        FormatHex(AsText(claim.opening.state_digest)),
        claim.parts.empty() ? " (no bundle.json or digest.json to name the part)" : ""));
  }
  if (audit::CommitState(claim.opening.salt, replay.digest.digest) !=
      claim.statement.subject_digest) {
    return absl::DataLossError(
        "the replayed digest is the opening's, but not the one in the signed statement");
  }
  return absl::OkStatus();
}

}  // namespace lethe::client
