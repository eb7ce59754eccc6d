// What wiping costs a server: one process, whose wipes are switched off and on again every half second.
//
// wiping_bench [ROUNDS]: for each kind of call, calls (or tokens) a second with every wipe on, and the ratio with one of
// them off, as medians over the rounds (default 21). A figure above 1 is what that wipe costs.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/erasure/erasure_server.h"

namespace lethe::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct Setting {
  const char* name;
  std::optional<Fault> off;
};

constexpr Setting kSettings[] = {{"all on", std::nullopt},
                                 {"freed memory kept", Fault::kFreedMemoryKept},
                                 {"dead stacks kept", Fault::kDeadStacksKept},
                                 {"received bytes kept", Fault::kReceivedBytesKept}};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Units a second over half a second; `call` returns how many units it did.
double Rate(const std::function<int()>& call) {
  const Clock::time_point start = Clock::now();
  int done = 0;
  while (Clock::now() - start < std::chrono::milliseconds(500)) done += call();
  return done / std::chrono::duration<double>(Clock::now() - start).count();
}

void Measure(const char* name, const char* unit, int rounds, const std::function<int()>& call,
             ErasureServer* server) {
  std::vector<std::vector<double>> rates(std::size(kSettings));
  for (int round = 0; round < rounds; ++round) {
    for (size_t k = 0; k < rates.size(); ++k) {
      const size_t setting = (k + static_cast<size_t>(round)) % rates.size();
      server->SetFault(kSettings[setting].off);
      rates[setting].push_back(Rate(call));
    }
  }
  std::printf("%-34s %9.0f %s/s with all wipes", name, Median(rates[0]), unit);
  for (size_t k = 1; k < rates.size(); ++k) {
    std::vector<double> ratios;
    for (size_t i = 0; i < rates[k].size(); ++i) ratios.push_back(rates[k][i] / rates[0][i]);
    std::printf("; %s: x %.3f", kSettings[k].name, Median(ratios));
  }
  std::printf("\n");
}

void Run(int rounds) {
  ErasureServer server;
  const std::string session = server.CreateSession(kBoundedModel);
  server.Append(session, "something to go on from", "");
  const auto get = [&] {
    Context context;
    v1::GetSessionRequest request;
    request.set_session_id(session);
    v1::GetSessionResponse response;
    return server.stubs().session->GetSession(&context, request, &response).ok() ? 1 : 0;
  };
  Measure("GetSession", "calls", rounds, get, &server);
  const std::string text(2000, 'x');
  const auto tokenize = [&] {
    Context context;
    v1::TokenizeRequest request;
    request.set_model(kBoundedModel);
    request.set_text(text);
    v1::TokenizeResponse response;
    return server.stubs().model->Tokenize(&context, request, &response).ok() ? 1 : 0;
  };
  Measure("Tokenize of 2,000 bytes", "calls", rounds, tokenize, &server);
  const auto generate = [&] {
    server.Generate(session, "and", "", false);
    return 12;
  };
  Measure("Generate of 12 tokens on a fork", "tokens", rounds, generate, &server);
  const auto forget = [&] {
    server.Append(session, "to go", "label");
    return server.ForgetSubject(session, "label").ok() ? 1 : 0;
  };
  Measure("Append and Forget of 5 tokens", "pairs", rounds, forget, &server);
}

}  // namespace
}  // namespace lethe::testing

int main(int argc, char** argv) {
  lethe::testing::Run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 21);
  return 0;
}
