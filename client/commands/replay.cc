// lethe replay: proof P1. A fresh session, told only what is retained, must have the certified digest.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/certificate_files.h"
#include "client/commands/child_server.h"
#include "client/commands/commands.h"
#include "client/commands/files.h"
#include "client/commands/option_checks.h"
#include "client/commands/paging.h"
#include "client/commands/progress.h"
#include "client/commands/replay_check.h"
#include "client/commands/report.h"
#include "client/commands/sibling.h"
#include "client/commands/trust_file.h"
#include "client/commands/vector_calls.h"

#include "audit/certificate/bundle.h"
#include "audit/certificate/commitment.h"
#include "audit/certificate/dsse.h"
#include "audit/certificate/trust.h"
#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

struct ReplayOptions {
  std::string session_id;
  std::string certificate;
  std::string model_directory;
  std::string fresh_server;
  std::string inputs_path;
  std::string trust_path;
};

absl::Status BadPlace() {
  return absl::InvalidArgumentError(
      "say where to replay with either --model DIR (a private server) or --fresh-server ADDR");
}

absl::Status CheckOptions(const ReplayOptions& options) {
  if (options.session_id.empty() == options.inputs_path.empty()) {
    return absl::InvalidArgumentError(
        "give the retained inputs either as SESSION (read from the server) or as --inputs FILE");
  }
  if (!options.model_directory.empty() && !options.fresh_server.empty()) return BadPlace();
  return options.fresh_server.empty() ? absl::OkStatus()
                                      : CheckAddress("--fresh-server", options.fresh_server);
}

// Once the session's kind is known.
absl::Status CheckPlace(const ReplayOptions& options, const InputsFile& inputs) {
  if (!inputs.vectors) {
    return options.model_directory.empty() && options.fresh_server.empty() ? BadPlace()
                                                                           : absl::OkStatus();
  }
  return options.model_directory.empty()
             ? absl::OkStatus()
             : absl::InvalidArgumentError("--model: a vector session has none; leave it out");
}

// Parts of the certified digest, out of bundle.json or digest.json; empty when neither is there.
std::vector<audit::StatePart> CertifiedParts(const ReplayOptions& options,
                                             const audit::CertificateFiles& files) {
  if (files.bundle) {
    absl::StatusOr<audit::ProofBundle> bundle = audit::ParseBundle(*files.bundle);
    if (bundle.ok()) {
      return std::move(bundle->parts);
    }
  }
  const absl::StatusOr<std::string> json =
      ReadFile(absl::StrCat(options.certificate, "/", kDigestFile));
  if (json.ok()) {
    absl::StatusOr<DigestFile> digest = ParseDigestFile(*json);
    if (digest.ok()) {
      return std::move(digest->parts);
    }
  }
  return {};
}

absl::Status CheckTrust(const ReplayOptions& options, const audit::CertificateFiles& files) {
  if (options.trust_path.empty()) {
    return absl::OkStatus();
  }
  LETHE_ASSIGN_OR_RETURN(const audit::TrustStore trust, ReadTrust(options.trust_path));
  const audit::VerifyReport report = audit::VerifyCertificate(files, trust);
  const audit::Check* failure = report.first_failure();
  return failure == nullptr
             ? absl::OkStatus()
             : absl::DataLossError(absl::StrCat("the certificate does not verify: ", failure->name,
                                                ": ", failure->detail));
}

absl::StatusOr<ReplayClaim> ReadClaim(const ReplayOptions& options) {
  LETHE_ASSIGN_OR_RETURN(const audit::CertificateFiles files, ReadCertificate(options.certificate));
  LETHE_RETURN_IF_ERROR(CheckTrust(options, files));
  if (!files.opening) {
    return absl::DataLossError(
        absl::StrCat(IncompleteError(options.certificate, kOpeningFile).message(),
                     "; without it the salted digest cannot be compared"));
  }
  const absl::StatusOr<audit::DsseEnvelope> envelope = audit::ParseEnvelope(files.envelope);
  absl::StatusOr<audit::Opening> opening = audit::ParseOpening(*files.opening);
  if (!envelope.ok() || !opening.ok()) {
    return absl::DataLossError(
        absl::StrCat("the certificate is damaged: ",
                     envelope.ok() ? opening.status().message() : envelope.status().message()));
  }
  absl::StatusOr<audit::Statement> statement = audit::ParseStatement(envelope->payload);
  if (!statement.ok()) {
    return absl::DataLossError(
        absl::StrCat("the certificate is damaged: ", statement.status().message()));
  }
  const audit::CommittedSet retained = audit::CommitSet(opening->salt, opening->retained);
  if (retained.count != statement->retained.count || retained.root != statement->retained.root) {
    return absl::DataLossError(absl::StrCat("the certificate is damaged: ", kOpeningFile,
                                            " names other retained inputs than the statement"));
  }
  return ReplayClaim{.statement = *std::move(statement),
                     .opening = *std::move(opening),
                     .parts = CertifiedParts(options, files)};
}

// Whether the certificate's retained inputs have this one.
bool IsRetained(const std::vector<uint64_t>& retained, uint64_t token_id) {
  return std::binary_search(retained.begin(), retained.end(), token_id);
}

absl::Status FetchVectors(Client& client, const ReplayOptions& options,
                          const std::vector<uint64_t>& retained, VectorInputs* vectors) {
  const auto keep = [&](const v1::ListVectorsResponse& page) {
    for (const v1::VectorRow& row : page.rows()) {
      if (!IsRetained(retained, row.token_id())) continue;
      LETHE_RETURN_IF_ERROR(AddRow(row, &vectors->rows));
    }
    return absl::OkStatus();
  };
  return ListAllVectors(client, options.session_id, keep);
}

absl::Status FetchTokens(Client& client, const ReplayOptions& options,
                         const std::vector<uint64_t>& retained, std::vector<int32_t>* vocab_ids) {
  LETHE_ASSIGN_OR_RETURN(
      const std::vector<v1::Input> inputs,
      ListAllInputs(client,
                    {.session_id = options.session_id, .subject = "", .include_content = true}));
  for (const v1::Input& input : inputs) {
    if (IsRetained(retained, input.token_id())) vocab_ids->push_back(input.vocab_id());
  }
  return absl::OkStatus();
}

// The certificate's retained inputs, read from the server. Inputs told since then are left out; if one
// was forgotten since then there is nothing to replay.
absl::StatusOr<InputsFile> FetchInputs(Context& context, const ReplayOptions& options,
                                       const std::vector<uint64_t>& retained) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::GetSessionRequest request;
  request.set_session_id(options.session_id);
  LETHE_ASSIGN_OR_RETURN(const v1::GetSessionResponse response, client->GetSession(request));
  const v1::Session& session = response.session();
  InputsFile file{
      .model = session.model(), .memory_options = session.memory_options(), .vocab_ids = {}};
  if (session.has_vector_options()) {
    file.vectors = NoVectors(session.vector_options());
    LETHE_RETURN_IF_ERROR(FetchVectors(*client, options, retained, &*file.vectors));
  } else {
    LETHE_RETURN_IF_ERROR(FetchTokens(*client, options, retained, &file.vocab_ids));
  }
  if (file.num_inputs() != retained.size()) {
    return absl::DataLossError(absl::StrCat(
        "cannot replay: the session holds only ", file.num_inputs(), " of the ", retained.size(),
        " inputs of this certificate (some were forgotten since, or it is "
        "another session's)"));
  }
  return file;
}

absl::StatusOr<InputsFile> ReadInputs(const ReplayOptions& options, size_t num_retained) {
  LETHE_ASSIGN_OR_RETURN(const std::string json, ReadFile(options.inputs_path));
  LETHE_ASSIGN_OR_RETURN(InputsFile file, ParseInputsFile(json));
  if (file.num_inputs() != num_retained) {
    return absl::DataLossError(absl::StrCat("the inputs file holds ", file.num_inputs(),
                                            " inputs, the certificate speaks of ", num_retained));
  }
  return file;
}

// The server of the replay is not the one that --server names, and an error says which of the two it is.
absl::StatusOr<ReplayResult> AtAddress(absl::StatusOr<ReplayResult> result,
                                       const std::string& address) {
  if (result.ok()) return result;
  absl::Status status = result.status();
  status.SetPayload(kServerAddressType, absl::Cord(address));
  return status;
}

// A GPU's digests are that kind of GPU's alone; the private server must compute there too.
std::string DeviceOf(const std::string& device_kind) {
  return absl::StartsWith(device_kind, "cuda-") ? "cuda" : "cpu";
}

absl::StatusOr<ReplayResult> RunReplay(Context& context, const ReplayOptions& options,
                                       const std::string& device_kind, const InputsFile& inputs) {
  Progress progress(context.io(), "replaying");
  std::unique_ptr<ChildServer> child;
  ConnectOptions connect{.address = options.fresh_server, .timeout_s = context.options().timeout_s};
  if (options.fresh_server.empty()) {
    LETHE_ASSIGN_OR_RETURN(const std::string program, SiblingProgram("lethe-server"));
    LETHE_ASSIGN_OR_RETURN(child, ChildServer::Start({.program = program,
                                                      .model_directory = options.model_directory,
                                                      .device = DeviceOf(device_kind)}));
    connect.address = child->address();
  }
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<Client> fresh, Client::Connect(connect));
  const auto show = [&](size_t num_done) {
    progress.Update(absl::StrCat(num_done, " of ", inputs.num_inputs(), " inputs"));
  };
  return AtAddress(RebuildDigest(*fresh, inputs, show), connect.address);
}

absl::Status Replay(Context& context, const ReplayOptions& options) {
  LETHE_RETURN_IF_ERROR(CheckOptions(options));
  LETHE_ASSIGN_OR_RETURN(const ReplayClaim claim, ReadClaim(options));
  LETHE_ASSIGN_OR_RETURN(const InputsFile inputs,
                         options.inputs_path.empty()
                             ? FetchInputs(context, options, claim.opening.retained)
                             : ReadInputs(options, claim.opening.retained.size()));
  LETHE_RETURN_IF_ERROR(CheckPlace(options, inputs));
  LETHE_ASSIGN_OR_RETURN(const ReplayResult result,
                         RunReplay(context, options, claim.statement.engine.device_kind, inputs));
  LETHE_RETURN_IF_ERROR(CompareReplay(claim, result));
  const std::string digest = FormatHex(absl::string_view(
      reinterpret_cast<const char*>(result.digest.digest.data()), result.digest.digest.size()));
  if (context.json()) {
    context.PrintJson(Json{{"equal", true},
                           {"num_inputs", result.num_inputs},
                           {"sha256", digest},
                           {"signature_checked", !options.trust_path.empty()}});
    return absl::OkStatus();
  }
  context.out() << "Replay holds: a fresh session that was told only the "
                << FormatCount(result.num_inputs, "retained input")
                << " has the certified state, byte for byte.\n";
  FieldTable table;
  table.Add("state digest", digest);
  table.Add("model", inputs.vectors ? "none (vector session)" : result.model);
  table.Add("signature", options.trust_path.empty()
                             ? "not checked here (give --trust, or run lethe verify)"
                             : "checked against the trust file");
  table.Print(context.out());
  return absl::OkStatus();
}

}  // namespace

void AddReplayCommand(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(
      "replay", "Recompute the certified state from the retained inputs alone (proof P1)");
  const auto options = std::make_shared<ReplayOptions>();
  command->add_option("SESSION", options->session_id, "Session to read the retained inputs from");
  command->add_option("--inputs", options->inputs_path,
                      "Read them from this file instead (lethe session inputs --export)");
  command->add_option("--certificate", options->certificate, "Directory of the certificate")
      ->required();
  command->add_option(
      "--model", options->model_directory,
      "Model directory; a private lethe-server is started on it. Of a vector session "
      "leave it out: the private server needs none");
  command->add_option("--fresh-server", options->fresh_server,
                      "Use this server for the replay instead, HOST:PORT");
  command->add_option("--trust", options->trust_path,
                      "Also verify the certificate against these keys");
  command->footer("Example: lethe replay $S --certificate certificate --model models/lethe-tiny");
  command->callback([&context, options] { context.Finish(Replay(context, *options)); });
}

}  // namespace lethe::client
