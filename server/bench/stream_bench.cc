// RunStreamBench: many streams at once on a device, through gRPC, beside the bare batched loop.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include <grpcpp/grpcpp.h>

#include "kernels/base/status_macros.h"
#include "lethe/v1/generation.grpc.pb.h"
#include "lethe/v1/session.grpc.pb.h"
#include "server/bench/benches.h"
#include "server/bench/device_models.h"
#include "server/bench/report.h"
#include "server/device/device_numerics.h"
#include "server/device_options.h"
#include "server/rpc/rpc_server.h"
#include "server/rpc/server_core.h"

namespace lethe::bench {
namespace {

constexpr int64_t kHistory = 64;

// What a stream saw, in seconds from the common start.
struct StreamTimes {
  double first = 0;
  double end = 0;
  std::vector<double> gaps;  // between the messages, a message's tokens sharing its gap
};

struct StreamResult {
  double bare = 0;      // tokens/s
  double served = 0;    // likewise
  double together = 0;  // streams that a step with any took, on average
  std::vector<double> first_s;
  std::vector<double> gaps_s;
};

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

int32_t Greedy(absl::Span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// One thread, one pass a token of all: what a server cannot beat.
absl::StatusOr<double> BareRate(DeviceKind device, const std::shared_ptr<const Model>& model,
                                int32_t num_streams, int64_t num_tokens) {
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<Queue> queue, Queue::Create(device));
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceModel> weights,
                         DeviceModel::Create(queue.get(), model));
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<StatePool> pool,
                         StatePool::Create(weights.get(), num_streams));
  ForwardLimits limits;
  limits.max_sequences = num_streams;
  limits.max_tokens = std::max<int64_t>(num_streams, 2 * kHistory);
  limits.solver_threads = static_cast<int64_t>(std::thread::hardware_concurrency());
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceForward> forward,
                         DeviceForward::Create(weights.get(), pool.get(), limits));
  const auto config = std::make_shared<const ModelConfig>(model->config());
  const auto vocab_size = static_cast<size_t>(config->vocab_size);
  const auto count = static_cast<size_t>(num_streams);
  std::vector<std::unique_ptr<SvSession>> sv(count);
  std::vector<ForwardSequence> sequences(count);
  std::vector<float> logits(count * vocab_size);
  std::vector<int32_t> next(count);
  for (size_t i = 0; i < count; ++i) {
    LETHE_ASSIGN_OR_RETURN(sequences[i].slot, pool->Allocate());
    if (HasSvGroups(*config)) {
      LETHE_ASSIGN_OR_RETURN(sv[i], SvSession::Create(weights.get(), config));
    }
    sequences[i].sv = sv[i].get();
    sequences[i].logits = logits.data() + i * vocab_size;
    const std::vector<int32_t> text = SampleText(kHistory, i);
    sequences[i].vocab_ids = text;
    LETHE_RETURN_IF_ERROR(forward->Evaluate({&sequences[i], 1}).status());
  }
  const auto step = [&](int64_t rank) -> absl::Status {
    for (size_t i = 0; i < count; ++i) {
      next[i] = Greedy(absl::MakeConstSpan(logits).subspan(i * vocab_size, vocab_size));
      sequences[i].vocab_ids = absl::MakeConstSpan(&next[i], 1);
      sequences[i].rank = rank;
    }
    return forward->Evaluate(sequences).status();
  };
  constexpr int64_t kWarmUp = 8;
  for (int64_t t = 0; t < kWarmUp; ++t) LETHE_RETURN_IF_ERROR(step(kHistory + t));
  const double start = Now();
  for (int64_t t = 0; t < num_tokens; ++t) LETHE_RETURN_IF_ERROR(step(kHistory + kWarmUp + t));
  return static_cast<double>(num_streams * num_tokens) / (Now() - start);
}

absl::Status FromRpc(const grpc::Status& status) {
  return status.ok() ? absl::OkStatus()
                     : absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                                    status.error_message());
}

// One client with a connection, a session and its stream.
class Stream {
 public:
  Stream(const std::string& address, uint64_t seed) : seed_(seed) {
    grpc::ChannelArguments arguments;
    arguments.SetInt("lethe.stream", static_cast<int>(seed));  // a connection of its own
    const auto channel =
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    sessions_ = v1::SessionService::NewStub(channel);
    generation_ = v1::GenerationService::NewStub(channel);
  }

  absl::Status Prepare() {
    grpc::ClientContext create;
    v1::CreateSessionResponse created;
    LETHE_RETURN_IF_ERROR(FromRpc(sessions_->CreateSession(&create, {}, &created)));
    id_ = created.session().session_id();
    v1::AppendRequest request;
    request.set_session_id(id_);
    for (const int32_t vocab_id : SampleText(kHistory, seed_)) {
      request.mutable_input()->mutable_vocab_ids()->add_vocab_ids(vocab_id);
    }
    grpc::ClientContext append;
    v1::AppendResponse appended;
    return FromRpc(sessions_->Append(&append, request, &appended));
  }

  absl::Status Generate(int64_t num_tokens, double start, StreamTimes* times) {
    v1::GenerateRequest request;
    request.set_session_id(id_);
    request.mutable_sampling()->set_temperature(0);
    request.mutable_output()->set_max_tokens(static_cast<int32_t>(num_tokens));
    request.mutable_output()->set_ignore_end_of_text(true);
    grpc::ClientContext context;
    const auto reader = generation_->Generate(&context, request);
    int64_t num_received = 0;
    for (v1::GenerateResponse response; reader->Read(&response);) {
      const int count = response.delta().tokens_size();
      if (count == 0) continue;
      const double now = Now() - start;
      if (num_received == 0) {
        times->first = now;
      } else {
        const double gap = (now - times->end) / count;
        times->gaps.insert(times->gaps.end(), static_cast<size_t>(count), gap);
      }
      times->end = now;
      num_received += count;
    }
    LETHE_RETURN_IF_ERROR(FromRpc(reader->Finish()));
    if (num_received == num_tokens) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("received ", num_received, " tokens"));
  }

  absl::Status Delete() {
    v1::DeleteSessionRequest request;
    request.set_session_id(id_);
    grpc::ClientContext context;
    v1::DeleteSessionResponse response;
    return FromRpc(sessions_->DeleteSession(&context, request, &response));
  }

 private:
  const uint64_t seed_;
  std::unique_ptr<v1::SessionService::Stub> sessions_;
  std::unique_ptr<v1::GenerationService::Stub> generation_;
  std::string id_;
};

absl::Status RunStreams(const std::string& address, int32_t num_streams, int64_t num_tokens,
                        StreamResult* result) {
  std::vector<StreamTimes> times(static_cast<size_t>(num_streams));
  std::vector<absl::Status> statuses(times.size());
  std::vector<std::unique_ptr<Stream>> streams;
  for (size_t i = 0; i < times.size(); ++i) streams.push_back(std::make_unique<Stream>(address, i));
  std::atomic<double> start{0};
  std::barrier together(num_streams, [&]() noexcept { start.store(Now()); });
  std::vector<std::thread> threads;
  for (size_t i = 0; i < times.size(); ++i) {
    threads.emplace_back([&, i] {
      statuses[i] = streams[i]->Prepare();
      together.arrive_and_wait();
      if (statuses[i].ok()) statuses[i] = streams[i]->Generate(num_tokens, start.load(), &times[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  double end = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    LETHE_RETURN_IF_ERROR(statuses[i]);
    // One by one: a tenant's erasures at once are few.
    LETHE_RETURN_IF_ERROR(streams[i]->Delete());
    end = std::max(end, times[i].end);
    result->first_s.push_back(times[i].first);
    result->gaps_s.insert(result->gaps_s.end(), times[i].gaps.begin(), times[i].gaps.end());
  }
  result->served = static_cast<double>(num_streams * num_tokens) / end;
  return absl::OkStatus();
}

// Since the counters were `before`.
double StreamsPerStep(const DeviceEngine::Counters& before, const DeviceEngine::Counters& after) {
  int64_t num_steps = 0;
  for (const int64_t count : after.steps_by_decoders) num_steps += count;
  for (const int64_t count : before.steps_by_decoders) num_steps -= count;
  const int64_t num_decoded = after.num_decoded - before.num_decoded;
  return static_cast<double>(num_decoded) / static_cast<double>(std::max<int64_t>(num_steps, 1));
}

void Print(const std::string& name, int32_t num_streams, const StreamResult& result, bool json) {
  const double first_p50 = 1e3 * Quantile(result.first_s, 0.5);
  const double first_p99 = 1e3 * Quantile(result.first_s, 0.99);
  const double gap_p50 = 1e3 * Quantile(result.gaps_s, 0.5);
  const double gap_p99 = 1e3 * Quantile(result.gaps_s, 0.99);
  if (json) {
    std::printf(
        "{\"bench\":\"streams\",\"model\":\"%s\",\"streams\":%d,\"bare_tokens_per_s\":%.1f,"
        "\"served_tokens_per_s\":%.1f,\"streams_per_step\":%.2f,\"first_p50_ms\":%.3f,\"first_p99_"
        "ms\":%.3f,"
        "\"gap_p50_ms\":%.4f,\"gap_p99_ms\":%.4f}\n",
        name.c_str(), num_streams, result.bare, result.served, result.together, first_p50,
        first_p99, gap_p50, gap_p99);
  } else {
    std::printf("%-12s %8d %12.0f %12.0f %7.1f %% %8.1f %10.2f %10.2f %10.3f %10.3f\n",
                name.c_str(), num_streams, result.bare, result.served,
                100 * result.served / result.bare, result.together, first_p50, first_p99, gap_p50,
                gap_p99);
  }
  std::fflush(stdout);
}

absl::Status RunModel(const StreamBenchOptions& options, const std::string& name,
                      const std::shared_ptr<const Model>& model) {
  const int32_t most = *std::max_element(options.streams.begin(), options.streams.end());
  DeviceOptions device;
  device.device = options.device;
  device.num_slots = most;
  device.max_batch = most;
  device.solver_threads = static_cast<int>(std::thread::hardware_concurrency());
  const DeviceKind kind = options.device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
  std::vector<StreamResult> results(options.streams.size());
  for (size_t i = 0; i < results.size(); ++i) {
    LETHE_ASSIGN_OR_RETURN(results[i].bare,
                           BareRate(kind, model, options.streams[i], options.num_tokens));
  }
  ServerCore core(2 * most, 2L * most);
  Limits limits;
  limits.streams = limits.tenant_streams = limits.tenant_calls = limits.queue = most;
  limits.tenant_requests_per_second = 0;
  core.SetLimits(limits);
  LETHE_RETURN_IF_ERROR(core.models.Add(model));
  LETHE_ASSIGN_OR_RETURN(core.devices, AttachDevices(device, core.models, {}));
  RpcOptions listen;
  listen.listen_address = "127.0.0.1:0";
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<RpcServer> server, RpcServer::Start(&core, listen));
  for (size_t i = 0; i < results.size(); ++i) {
    StreamResult warm_up;
    LETHE_RETURN_IF_ERROR(RunStreams(server->address(), options.streams[i], 16, &warm_up));
    const DeviceEngine& engine = *core.devices.front()->engine();
    const DeviceEngine::Counters before = engine.counters();
    LETHE_RETURN_IF_ERROR(
        RunStreams(server->address(), options.streams[i], options.num_tokens, &results[i]));
    results[i].together = StreamsPerStep(before, engine.counters());
    Print(name, options.streams[i], results[i], options.json);
  }
  server->Shutdown(1);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunStreamBench(const StreamBenchOptions& options) {
  if (!options.json) {
    std::printf(
        "machine: %s; device: %s; %lld tokens of history, %lld drawn by each stream; clients on "
        "the same machine\n\n%-12s %8s %12s %12s %9s %8s %10s %10s %10s %10s\n",
        MachineName().c_str(), options.device.c_str(), static_cast<long long>(kHistory),
        static_cast<long long>(options.num_tokens), "model", "streams", "bare tok/s", "served",
        "of bare", "a step", "first p50", "p99 ms", "gap p50", "p99 ms");
  }
  if (!options.model_directory.empty()) {
    LETHE_ASSIGN_OR_RETURN(const auto model, Model::Load(options.model_directory));
    return RunModel(options, model->config().name, model);
  }
  for (const DeviceBenchModel& shape : DeviceBenchModels()) {
    if (!absl::StrContains(shape.name, options.shape)) continue;
    LETHE_ASSIGN_OR_RETURN(const auto model, MakeBf16Model(shape.config_json));
    LETHE_RETURN_IF_ERROR(RunModel(options, shape.name, model));
  }
  return absl::OkStatus();
}

}  // namespace lethe::bench
