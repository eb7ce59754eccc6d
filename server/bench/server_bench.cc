#include <algorithm>
#include <cstdio>
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
#include "server/rpc/rpc_server.h"
#include "server/rpc/server_core.h"

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

void Print(int64_t size, const Samples& bare, const Samples& served, const Samples& added,
           bool json) {
  if (json) {
    std::printf(
        "{\"bench\":\"server\",\"history\":%lld,\"tokens\":%lld,\"bare_median_tokens_per_s\":%.1f,"
        "\"served_median_tokens_per_s\":%.1f,\"added_median_percent\":%.2f,"
        "\"added_min_percent\":%.2f,\"added_max_percent\":%.2f,\"runs\":%zu}\n",
        static_cast<long long>(size), static_cast<long long>(kServedTokens), bare.Median(),
        served.Median(), added.Median(), added.Min(), added.Max(), added.values.size());
  } else {
    std::printf("%8lld %10.0f %10.0f %9.1f%% %9.1f%% %9.1f%%\n", static_cast<long long>(size),
                bare.Median(), served.Median(), added.Median(), added.Min(), added.Max());
  }
}

}  // namespace

absl::Status RunServerBench(const BenchOptions& options) {
  ServerCore core(/*compute_threads=*/1, /*max_sessions=*/16);
  LETHE_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, Model::Load(options.model_directory));
  LETHE_RETURN_IF_ERROR(core.models.Add(model));
  RpcOptions listen;
  listen.listen_address = "127.0.0.1:0";
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server, RpcServer::Start(&core, listen));
  Client client(server->address());
  if (!options.json) {
    std::printf(
        "machine: %s, one compute thread\nmodel: %s, %lld tokens decoded, %d pairs of runs\n\n",
        MachineName().c_str(), model->config().name.c_str(), static_cast<long long>(kServedTokens),
        options.runs);
    std::printf("%8s %10s %10s %10s %10s %10s\n", "history", "bare tok/s", "served", "added time",
                "least", "greatest");
  }
  for (const int64_t size : options.sizes) {
    Samples bare;
    Samples served;
    Samples added;
    for (int run = 0; run < options.runs; ++run) {
      // Neighbours in time share the machine's mood; the order alternates.
      const std::vector<int32_t> text = SampleText(size, static_cast<uint64_t>(run) + 1);
      double seconds[2] = {0, 0};
      for (const int turn : {run % 2, 1 - run % 2}) {
        LETHE_ASSIGN_OR_RETURN(seconds[turn],
                               turn == 0 ? BareSeconds(model, text) : ServedSeconds(&client, text));
      }
      bare.values.push_back(static_cast<double>(kServedTokens) / seconds[0]);
      served.values.push_back(static_cast<double>(kServedTokens) / seconds[1]);
      added.values.push_back((seconds[1] / seconds[0] - 1) * 100);
    }
    Print(size, bare, served, added, options.json);
  }
  server->Shutdown(1);
  return absl::OkStatus();
}

}  // namespace lethe::bench
