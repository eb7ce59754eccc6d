#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include <grpcpp/grpcpp.h>

#include "kernels/base/status_macros.h"
#include "lethe/v1/generation.grpc.pb.h"
#include "lethe/v1/session.grpc.pb.h"
#include "server/bench/benches.h"
#include "server/bench/report.h"
#include "server/model/model.h"
#include "server/recovery/recovery.h"
#include "server/rpc/rpc_server.h"
#include "server/rpc/server_core.h"
#include "server/store/data_directory.h"

namespace lethe::bench {
namespace {

absl::Status FromRpc(const grpc::Status& status) {
  return status.ok() ? absl::OkStatus()
                     : absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                                    status.error_message());
}

// A client of the server in this process, over a real loopback connection.
class Client {
 public:
  explicit Client(const std::string& address)
      : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        sessions_(v1::SessionService::NewStub(channel_)),
        generation_(v1::GenerationService::NewStub(channel_)) {}

  // A session that was sent `text`.
  absl::StatusOr<std::string> MakeSession(const std::vector<int32_t>& text) {
    grpc::ClientContext create_context;
    v1::CreateSessionResponse created;
    LETHE_RETURN_IF_ERROR(FromRpc(sessions_->CreateSession(&create_context, {}, &created)));
    grpc::ClientContext append_context;
    v1::AppendRequest request;
    request.set_session_id(created.session().session_id());
    for (const int32_t vocab_id : text) {
      request.mutable_input()->mutable_vocab_ids()->add_vocab_ids(vocab_id);
    }
    v1::AppendResponse response;
    LETHE_RETURN_IF_ERROR(FromRpc(sessions_->Append(&append_context, request, &response)));
    return created.session().session_id();
  }

  // Seconds from the call to its end: greedy decoding, as the bare loop does it.
  absl::StatusOr<double> Decode(const std::string& session_id, int64_t num_tokens) {
    v1::GenerateRequest request;
    request.set_session_id(session_id);
    request.mutable_sampling()->set_temperature(0);
    request.mutable_output()->set_max_tokens(static_cast<int32_t>(num_tokens));
    request.mutable_output()->set_ignore_end_of_text(true);
    grpc::ClientContext context;
    int64_t num_received = 0;
    const double start = Now();
    const auto reader = generation_->Generate(&context, request);
    for (v1::GenerateResponse response; reader->Read(&response);) {
      num_received += response.delta().tokens_size();
    }
    const double seconds = Now() - start;
    LETHE_RETURN_IF_ERROR(FromRpc(reader->Finish()));
    if (num_received != num_tokens) {
      return absl::InternalError(absl::StrCat("received ", num_received, " tokens"));
    }
    return seconds;
  }

  absl::Status DeleteSession(const std::string& session_id) {
    grpc::ClientContext context;
    v1::DeleteSessionRequest request;
    request.set_session_id(session_id);
    v1::DeleteSessionResponse response;
    return FromRpc(sessions_->DeleteSession(&context, request, &response));
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::SessionService::Stub> sessions_;
  std::unique_ptr<v1::GenerationService::Stub> generation_;
};

absl::StatusOr<double> BareSeconds(const std::shared_ptr<const Model>& model,
                                   const std::vector<int32_t>& text) {
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                         Session::Create(model, SessionOptions()));
  LETHE_RETURN_IF_ERROR(session->Append(text, "", InputKind::kAppended).status());
  static_cast<void>(session->logits());
  const double start = Now();
  LETHE_RETURN_IF_ERROR(DecodeGreedily(session.get(), kServedTokens));
  return Now() - start;
}

absl::StatusOr<double> ServedSeconds(Client* client, const std::vector<int32_t>& text) {
  LETHE_ASSIGN_OR_RETURN(const std::string session_id, client->MakeSession(text));
  LETHE_ASSIGN_OR_RETURN(const double seconds, client->Decode(session_id, kServedTokens));
  LETHE_RETURN_IF_ERROR(client->DeleteSession(session_id));
  return seconds;
}

// One size: runs of the three, and each of the last two against the one before it.
struct ServerSamples {
  Samples bare;     // tokens/s
  Samples served;   // sessions in memory alone
  Samples durable;  // sessions on disk
  Samples added;    // percent of time, served against bare
  Samples stored;   // likewise, durable against served
};

void Print(int64_t size, const ServerSamples& samples, bool json) {
  if (json) {
    std::printf(
        "{\"bench\":\"server\",\"history\":%lld,\"tokens\":%lld,\"bare_median_tokens_per_s\":%.1f,"
        "\"served_median_tokens_per_s\":%.1f,\"added_median_percent\":%.2f,"
        "\"added_min_percent\":%.2f,\"added_max_percent\":%.2f,"
        "\"durable_median_tokens_per_s\":%.1f,\"stored_median_percent\":%.2f,"
        "\"stored_min_percent\":%.2f,\"stored_max_percent\":%.2f,\"runs\":%zu}\n",
        static_cast<long long>(size), static_cast<long long>(kServedTokens), samples.bare.Median(),
        samples.served.Median(), samples.added.Median(), samples.added.Min(), samples.added.Max(),
        samples.durable.Median(), samples.stored.Median(), samples.stored.Min(),
        samples.stored.Max(), samples.added.values.size());
  } else {
    std::printf("%8lld %10.0f %10.0f %9.1f%% %9.1f%% %9.1f%% %10.0f %9.1f%% %9.1f%% %9.1f%%\n",
                static_cast<long long>(size), samples.bare.Median(), samples.served.Median(),
                samples.added.Median(), samples.added.Min(), samples.added.Max(),
                samples.durable.Median(), samples.stored.Median(), samples.stored.Min(),
                samples.stored.Max());
  }
  std::fflush(stdout);
}

// A server in this process, and a client of it.
struct Served {
  Served() : core(/*compute_threads=*/1, /*max_sessions=*/16) {}
  absl::Status Start(const std::shared_ptr<const Model>& model, const std::string& data_path) {
    LETHE_RETURN_IF_ERROR(core.models.Add(model));
    if (!data_path.empty()) {
      LETHE_ASSIGN_OR_RETURN(data, DataDirectory::Open(data_path, "lethe.dev/audit/bench"));
      core.trail = {data->log(), data->recorder(), audit::Sha256Of("lethe-bench"), "lethe bench"};
      LETHE_RETURN_IF_ERROR(RecoverSessions({data->store(), data->log(), &core.models,
                                             core.stored_input_bytes, &core.trail},
                                            &core.sessions)
                                .status());
    }
    RpcOptions listen;
    listen.listen_address = "127.0.0.1:0";
    LETHE_ASSIGN_OR_RETURN(server, RpcServer::Start(&core, listen));
    client = std::make_unique<Client>(server->address());
    return absl::OkStatus();
  }

  std::unique_ptr<DataDirectory> data;  // outlives the sessions
  ServerCore core;
  std::unique_ptr<RpcServer> server;
  std::unique_ptr<Client> client;
};

absl::Status RunSize(const std::shared_ptr<const Model>& model, int64_t size, int runs,
                     Client* plain, Client* durable, ServerSamples* samples) {
  for (int run = 0; run < runs; ++run) {
    // Neighbours in time share the machine's mood; the order goes round.
    const std::vector<int32_t> text = SampleText(size, static_cast<uint64_t>(run) + 1);
    double seconds[3] = {0, 0, 0};
    for (int turn = 0; turn < 3; ++turn) {
      const int who = (run + turn) % 3;
      LETHE_ASSIGN_OR_RETURN(seconds[who], who == 0
                                               ? BareSeconds(model, text)
                                               : ServedSeconds(who == 1 ? plain : durable, text));
    }
    const auto speed = [](double time) { return static_cast<double>(kServedTokens) / time; };
    samples->bare.values.push_back(speed(seconds[0]));
    samples->served.values.push_back(speed(seconds[1]));
    samples->durable.values.push_back(speed(seconds[2]));
    samples->added.values.push_back((seconds[1] / seconds[0] - 1) * 100);
    samples->stored.values.push_back((seconds[2] / seconds[1] - 1) * 100);
  }
  return absl::OkStatus();
}

absl::Status RunOn(const BenchOptions& options, const std::string& data_path) {
  LETHE_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, Model::Load(options.model_directory));
  Served plain;
  Served durable;
  LETHE_RETURN_IF_ERROR(plain.Start(model, ""));
  LETHE_RETURN_IF_ERROR(durable.Start(model, data_path));
  if (!options.json) {
    std::printf(
        "machine: %s, one compute thread\nmodel: %s, %lld tokens decoded, %d runs of each; files "
        "in "
        "%s\n\n",
        MachineName().c_str(), model->config().name.c_str(), static_cast<long long>(kServedTokens),
        options.runs, data_path.c_str());
    std::printf("%8s %10s %10s %10s %10s %10s %10s %10s %10s %10s\n", "history", "bare tok/s",
                "served", "added time", "least", "greatest", "durable", "added time", "least",
                "greatest");
  }
  for (const int64_t size : options.sizes) {
    ServerSamples samples;
    LETHE_RETURN_IF_ERROR(
        RunSize(model, size, options.runs, plain.client.get(), durable.client.get(), &samples));
    Print(size, samples, options.json);
  }
  plain.server->Shutdown(1);
  durable.server->Shutdown(1);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunServerBench(const BenchOptions& options) {
  namespace fs = std::filesystem;
  std::string pattern = (fs::temp_directory_path() / "lethe-bench-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) return absl::UnavailableError("no temporary directory");
  const absl::Status status = RunOn(options, pattern + "/data");
  std::error_code error;
  fs::remove_all(pattern, error);
  return status;
}

}  // namespace lethe::bench
