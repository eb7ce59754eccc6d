// lethe-server: loads models, opens the data directory, serves until SIGTERM or SIGINT.

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "audit/crypto/sha256.h"
#include "audit/witness/witness_client.h"
#include "kernels/base/status_macros.h"
#include "server/configuration_check.h"
#include "server/diagnostics/log.h"
#include "server/identity/authenticator.h"
#include "server/metrics/metrics_server.h"
#include "server/model/numerics_id.h"
#include "server/options.h"
#include "server/process_setup.h"
#include "server/recovery/recovery.h"
#include "server/recovery/replay_erasures.h"
#include "server/rpc/core_metrics.h"
#include "server/rpc/received_bytes.h"
#include "server/rpc/request_key.h"
#include "server/rpc/rpc_server.h"
#include "server/rpc/server_core.h"
#include "server/rpc/tls_credentials.h"
#include "server/session_keeper.h"
#include "server/store/data_directory.h"
#include "server/store/secret_file.h"
#include "server/wiping/dead_stacks.h"
#include "server/wiping/wiping.h"

namespace lethe {
namespace {

// Blocked before any thread starts, so that only WaitForStopSignal sees them.
sigset_t BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

audit::Sha256Digest ProgramDigest() {
  audit::Sha256 hash;
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::vector<char> block(size_t{1} << 20);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    hash.Update(absl::string_view(block.data(), static_cast<size_t>(file.gcount())));
  }
  return hash.Finish();
}

std::string BuildName() {
  return absl::StrCat("lethe ", LETHE_VERSION, " ", LETHE_COMPILER, " ", LETHE_ARCH);
}

absl::Status LoadModels(const ServerOptions& options, ServerCore* core) {
  for (const std::string& directory : options.model_directories) {
    LogInfo(absl::StrCat("loading the model in ", directory));
    LETHE_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, Model::Load(directory));
    LETHE_RETURN_IF_ERROR(core->models.Add(std::move(model)));
  }
  return absl::OkStatus();
}

// Null: nobody is asked for one.
absl::StatusOr<std::unique_ptr<const Authenticator>> AuthenticatorOf(
    const IdentityOptions& options) {
  std::unique_ptr<const Authenticator> authenticator;
  if (!options.asks_for_credentials()) return authenticator;
  AuthenticatorOptions wanted{options.tokens_path, options.certificates_path, std::nullopt};
  if (!options.edge_certificate.empty()) {
    LETHE_ASSIGN_OR_RETURN(wanted.edge_certificate, ParseFingerprint(options.edge_certificate));
  }
  LETHE_ASSIGN_OR_RETURN(authenticator, Authenticator::Open(wanted));
  return authenticator;
}

RpcOptions RpcOptionsOf(const ServerOptions& options) {
  RpcOptions rpc;
  rpc.listen_address = options.listen_address;
  rpc.max_message_bytes = options.max_message_bytes;
  rpc.reflection = options.reflection;
  rpc.keepalive_seconds = options.keepalive_seconds;
  rpc.keepalive_timeout_seconds = options.keepalive_timeout_seconds;
  const IdentityOptions& identity = options.identity;
  if (identity.tls_certificate_path.empty()) return rpc;
  rpc.tls = TlsFiles{identity.tls_certificate_path, identity.tls_key_path, identity.client_ca_path,
                     identity.requires_client_certificate()};
  rpc.max_connection_seconds = identity.max_connection_minutes * 60;
  return rpc;
}

// Whoever was not answered asks again; nothing may be done that is not on disk.
void EndProcess(const absl::Status& failure) {
  LogError(failure.message());
  LogError("the server ends: its memory goes, and a new start finds out what is on disk");
  std::_Exit(1);
}

// --check: what is damaged on standard output.
absl::Status Check(const RecoverySummary& summary, const ServerCore& core) {
  const int64_t num_named = CheckStoredSessions(core.sessions, [] { return true; });
  for (const auto& entry :
       core.sessions.List("", static_cast<size_t>(core.sessions.num_sessions()))) {
    if (absl::IsDataLoss(entry->Availability())) {
      std::printf("quarantined %s\n", entry->session_id.c_str());
    }
  }
  std::printf("%lld sessions, %lld damaged, %lld of these without their names\n",
              static_cast<long long>(core.sessions.num_sessions() + summary.num_unnamed),
              static_cast<long long>(num_named + summary.num_unnamed),
              static_cast<long long>(summary.num_unnamed));
  if (num_named + summary.num_unnamed == 0 && !summary.requests_lost) return absl::OkStatus();
  return absl::DataLossError("the data directory is damaged");
}

absl::Status ReplayLedger(const DataDirectory& data, const RecoverySummary& recovered,
                          ServerCore* core) {
  LETHE_ASSIGN_OR_RETURN(
      const ReplaySummary replayed,
      ReplayErasures({data.store(), &core->sessions, &core->scheduler, &core->trail}, recovered));
  if (replayed.num_sessions + replayed.num_deleted > 0) {
    LogInfo(absl::StrCat(
        "the data directory is older than the erasure ledger: ", replayed.num_forgotten,
        " inputs of ", replayed.num_sessions, " sessions forgotten again, ", replayed.num_deleted,
        " sessions deleted again"));
  }
  // What was read on the way.
  return WipeDeadStacks();
}

absl::StatusOr<RecoverySummary> Recover(const DataDirectory& data, ServerCore* core) {
  const RecoveryReport& report = data.store_report();
  if (report.num_damaged_places + report.num_damaged_intents > 0) {
    LogError(absl::StrCat("sessions.db is damaged in ", report.num_damaged_places, " places, and ",
                          report.num_damaged_intents,
                          " unfinished changes: sessions that this touches are quarantined"));
  }
  if (report.finished + report.abandoned > 0) {
    LogInfo(absl::StrCat("unfinished at the last end: ", report.finished,
                         " changes finished, as their record is in the log, ", report.abandoned,
                         " taken back"));
  }
  LETHE_ASSIGN_OR_RETURN(const RecoverySummary summary,
                         RecoverSessions({data.store(), data.log(), &core->models,
                                          core->stored_input_bytes, &core->trail},
                                         &core->sessions));
  if (summary.num_sessions + summary.num_quarantined + summary.num_waiting > 0) {
    LogInfo(absl::StrFormat(
        "%d sessions with %d inputs came back in %.2f s; %d damaged, %d without their model",
        summary.num_sessions, summary.num_inputs, summary.seconds, summary.num_quarantined,
        summary.num_waiting));
  }
  if (summary.num_moved > 0) {
    LogInfo(absl::StrCat(summary.num_moved,
                         " sessions were stored under another numerics id or device kind: each is "
                         "evaluated again, with a record that says so, when it is first used"));
  }
  LETHE_RETURN_IF_ERROR(ReplayLedger(data, summary, core));
  LETHE_RETURN_IF_ERROR(core->subjects.Recover(data.store(), summary.num_unnamed));
  return summary;
}

MetricsPlaces PlacesOf(const ServerOptions& options) {
  const std::string ledger =
      options.erasure_ledger.empty() ? options.data_directory + "-ledger" : options.erasure_ledger;
  return {options.data_directory, ledger, LETHE_VERSION};
}

ResidentOptions ResidentOptionsOf(const ServerOptions& options) {
  ResidentOptions resident;
  resident.max_bytes = options.resident_mib << 20;
  resident.idle_seconds = options.idle_minutes * 60;
  resident.max_snapshot_bytes = options.snapshot_mib << 20;
  return resident;
}

absl::StatusOr<std::vector<std::string>> ReadCheckpoints(const std::vector<std::string>& paths) {
  std::vector<std::string> notes;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    notes.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    if (!file.is_open()) {
      return absl::InvalidArgumentError(absl::StrCat("--expect-checkpoint: cannot read ", path));
    }
  }
  return notes;
}

absl::StatusOr<LogPolicy> PolicyOf(const ServerOptions& options) {
  LogPolicy policy;
  policy.adopt = options.adopt_log;
  LETHE_ASSIGN_OR_RETURN(policy.expected_heads, ReadCheckpoints(options.expected_checkpoints));
  policy.witness_required = options.witness_required;
  std::vector<audit::WitnessTarget> targets;
  for (const std::string& witness : options.witnesses) {
    LETHE_ASSIGN_OR_RETURN(audit::WitnessTarget target, audit::ParseWitnessTarget(witness));
    targets.push_back(std::move(target));
  }
  audit::WitnessPatience patience;
  if (!policy.witness_required) patience.num_attempts = 1;
  if (!targets.empty()) {
    policy.witness = std::make_shared<audit::WitnessClient>(std::move(targets), patience);
  }
  return policy;
}

// The change of a key that the options ask for.
std::optional<KeyChange> RequestedChange(const ServerOptions& options) {
  if (options.rotate_record_key) return KeyChange{KeyChange::Kind::kRotateRecordKey, "", {}};
  if (!options.rotate_log_key.empty()) {
    return KeyChange{KeyChange::Kind::kRotateLogKey, options.rotate_log_key, {}};
  }
  if (!options.restore_log.empty()) {
    return KeyChange{KeyChange::Kind::kRestoreLog, options.restore_log, {}};
  }
  return std::nullopt;
}

absl::Status ChangeKey(const ServerOptions& options, KeyChange change) {
  LETHE_ASSIGN_OR_RETURN(change.held_heads, ReadCheckpoints(options.expected_checkpoints));
  LETHE_ASSIGN_OR_RETURN(
      const std::string origin,
      DataDirectory::ChangeKey(options.data_directory, options.erasure_ledger, change));
  std::printf("the log is %s; hand out the new %s/trust.txt\n", origin.c_str(),
              options.data_directory.c_str());
  return absl::OkStatus();
}

// So that the next start evaluates less. A kill in the middle loses nothing.
void SpillAtEnd(const ServerCore& core) {
  constexpr std::chrono::seconds kMost{10};
  const auto end = std::chrono::steady_clock::now() + kMost;
  const int64_t num_spilled =
      SpillSessions(core.sessions, [&] { return std::chrono::steady_clock::now() < end; });
  if (num_spilled > 0) LogInfo(absl::StrCat("snapshots of ", num_spilled, " sessions are stored"));
}

absl::Status ServeUntilSignal(const ServerOptions& options, const sigset_t& signals,
                              const DataDirectory& data, MetricsServer* metrics, ServerCore* core) {
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server,
                         RpcServer::Start(core, RpcOptionsOf(options)));
  core->subjects.Resume();
  std::printf("lethe-server listening on %s\n", server->address().c_str());
  std::printf("trust file for auditors: %s\n", data.trust_path().c_str());
  if (metrics != nullptr) {
    metrics->SetPage([core, places = PlacesOf(options)] { return CoreMetrics(*core, places); });
    metrics->SetReady(true);
    std::printf("metrics: http://%s/metrics\n", metrics->address().c_str());
  }
  std::fflush(stdout);
  if (core->authenticator == nullptr && options.identity.anonymous_beyond_loopback) {
    LogInfo(absl::StrCat("no credential is asked for: whoever reaches ", server->address(),
                         " can read, change and delete every session"));
  }
  if (const absl::Status frozen = data.log()->frozen(); !frozen.ok()) {
    LogError(
        absl::StrCat("the audit log is frozen, nothing will be certified: ", frozen.message()));
  }
  int signal = 0;
  {
    const SessionKeeper keeper(ResidentOptionsOf(options), &core->sessions);
    sigwait(&signals, &signal);
  }
  LogInfo(
      absl::StrCat("stopping; running calls may go on for ", options.drain_seconds, " seconds"));
  if (metrics != nullptr) metrics->SetReady(false);
  server->Shutdown(options.drain_seconds);
  core->subjects.Stop();
  if (options.snapshot_mib > 0) SpillAtEnd(*core);
  if (metrics != nullptr) metrics->SetPage({});
  LogInfo("stopped");
  return absl::OkStatus();
}

absl::Status Run(const ServerOptions& options) {
  if (const std::optional<KeyChange> change = RequestedChange(options)) {
    return ChangeKey(options, *change);
  }
  const sigset_t signals = BlockStopSignals();
  if (options.check) {
    LETHE_RETURN_IF_ERROR(CheckConfiguration(options));
    if (const auto tls = RpcOptionsOf(options).tls) {
      LETHE_RETURN_IF_ERROR(TlsCredentials::Open(*tls).status());
    }
  }
  std::unique_ptr<MetricsServer> metrics;
  if (!options.metrics_address.empty() && !options.check) {
    LETHE_ASSIGN_OR_RETURN(metrics, MetricsServer::Start(options.metrics_address));
  }
  // A stream on a device waits for its step, not for a processor.
  const int slots = options.device.is_batched() ? static_cast<int>(2 * options.device.max_batch)
                                                : options.compute_threads;
  ServerCore core(slots, options.max_sessions);
  core.SetLimits(options.limits);
  core.on_failure = EndProcess;
  core.max_vectors = options.max_vectors;
  core.stored_input_bytes = static_cast<size_t>(options.stored_input_mib) << 20;
  LETHE_ASSIGN_OR_RETURN(core.authenticator, AuthenticatorOf(options.identity));
  LETHE_ASSIGN_OR_RETURN(LogPolicy log_policy, PolicyOf(options));
  if (options.check && !std::filesystem::exists(options.data_directory)) {
    LETHE_RETURN_IF_ERROR(LoadModels(options, &core));
    LETHE_RETURN_IF_ERROR(AttachDevices(options.device, core.models, EndProcess).status());
    std::printf("the configuration is valid; there is no data directory yet\n");
    return absl::OkStatus();
  }
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<DataDirectory> data,
                         DataDirectory::Open(options.data_directory, options.origin, EndProcess,
                                             options.erasure_ledger, log_policy));
  // An answer that is kept for a repeat is found by the request's hash, by the next process too.
  LETHE_ASSIGN_OR_RETURN(const audit::Secret32 request_key,
                         LoadOrCreateSecret(options.data_directory + "/sessions/request.key"));
  UseRequestKey(request_key);
  core.trail = {data->log(), data->recorder(), ProgramDigest(), BuildName(), data->ledger()};
  core.trail.memory_wiped = ProcessWipes() && ReceivedBytesAreWiped();
  if (!core.trail.memory_wiped) {
    LogError("this build does not wipe the memory that it frees, and its certificates say so");
  }
  core.sessions.UseLedger(data->ledger());
  core.record_spki = data->record_spki();
  LETHE_RETURN_IF_ERROR(LoadModels(options, &core));
  NumericsId();  // the self-test runs before the first call, not in it
  LETHE_ASSIGN_OR_RETURN(core.devices, AttachDevices(options.device, core.models, EndProcess));
  LETHE_ASSIGN_OR_RETURN(const RecoverySummary summary, Recover(*data, &core));
  if (options.check) return Check(summary, core);
  return ServeUntilSignal(options, signals, *data, metrics.get(), &core);
}

}  // namespace
}  // namespace lethe

int main(int argc, char** argv) {
  lethe::ForbidDumps();
  lethe::MakePrivateFiles();
  lethe::EndWhenOutOfMemory();
  const lethe::KnownStack known;
  lethe::ServerOptions options;
  if (const std::optional<int> code = lethe::ParseOptions(argc, argv, &options)) return *code;
  lethe::KeepFreedMemory(options.compute_threads);
  lethe::SetLogLevel(options.log_level);
  lethe::SetLogFormat(options.log_format);
  const absl::Status status = lethe::Run(options);
  if (status.ok()) return 0;
  lethe::LogError(status.message());
  return 1;
}
