// Measures tokens per second of each streaming memory's Step: one token a call (decode) and 64
// (prefill). Prints machine, case, shape, median and spread over the rounds. Usage: memory_bench
// [rounds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "memory/ovq/ovq_memory.h"
#include "memory/palimpsa/palimpsa_memory.h"
#include "memory/vla/vla_memory.h"
#include "tests/kernels/stream_inputs.h"

namespace lethe {
namespace {

constexpr int64_t kDim = 64;
constexpr int64_t kOvqSlots = 512;
constexpr int64_t kWarmTokens = 4096;  // OVQ holds floor(512 * 4096 / 4608) = 455 slots then
constexpr int64_t kRoundTokens = 1024;

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

struct Tokens {
  Tokens(int64_t num_heads, bool is_palimpsa, bool is_vla) {
    testing::RandomSource random(1);
    const int64_t rows = kChunkTokens * num_heads;
    q = random.Rows(rows, kDim, 1.0);
    k = random.Rows(rows, kDim, 1.0);
    v = random.Normals(rows * kDim);
    if (is_palimpsa) log_decay = random.Uniforms(rows, -0.1f, 0.0f);
    if (is_palimpsa) precision = random.Uniforms(rows * kDim, 0.0f, 1.0f);
    if (is_vla) write_direction = random.Rows(rows, kDim, 0.125);
  }

  MemoryInputs Slice(int64_t first, int64_t count) const {
    const auto part = [&](const std::vector<float>& x) {
      const auto per_token = static_cast<int64_t>(x.size()) / kChunkTokens;
      return absl::MakeConstSpan(x).subspan(static_cast<size_t>(first * per_token),
                                            static_cast<size_t>(count * per_token));
    };
    return {part(q), part(k), part(v), part(log_decay), part(precision), part(write_direction)};
  }

  std::vector<float> q, k, v, log_decay, precision, write_direction;
};

void StepTokens(const Tokens& tokens, int64_t num_heads, int64_t count, int64_t call,
                Memory* memory) {
  std::vector<float> out(static_cast<size_t>(call * num_heads * kDim));
  for (int64_t t = 0; t < count; t += call) {
    if (!memory->Step(tokens.Slice(t % kChunkTokens, call), call, absl::MakeSpan(out)).ok()) {
      std::fprintf(stderr, "step failed\n");
      std::exit(1);
    }
  }
}

void Measure(const std::string& kind, int64_t num_heads, int num_rounds,
             const std::function<std::unique_ptr<Memory>()>& create) {
  const Tokens tokens(num_heads, kind == "palimpsa", kind == "vla");
  for (int64_t call : {int64_t{1}, kChunkTokens}) {
    const std::unique_ptr<Memory> memory = create();
    StepTokens(tokens, num_heads, kWarmTokens, kChunkTokens, memory.get());
    const std::unique_ptr<MemorySnapshot> warm = memory->Snapshot();
    std::vector<double> rates;
    for (int round = 0; round < num_rounds; ++round) {
      if (!memory->Restore(*warm).ok()) std::exit(1);
      const auto start = std::chrono::steady_clock::now();
      StepTokens(tokens, num_heads, kRoundTokens, call, memory.get());
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      rates.push_back(static_cast<double>(kRoundTokens) / seconds.count());
    }
    std::sort(rates.begin(), rates.end());
    std::printf(
        "%-9s H=%ld K=V=%ld call=%-2ld  %10.0f tokens/s  (min %.0f, max %.0f, %zu rounds)  "
        "state %zu bytes\n",
        kind.c_str(), static_cast<long>(num_heads), static_cast<long>(kDim),
        static_cast<long>(call), rates[rates.size() / 2], rates.front(), rates.back(), rates.size(),
        memory->state_bytes());
  }
}

int Run(int num_rounds) {
  std::printf("machine: %s, one thread; median over rounds of %ld tokens after %ld\n",
              CpuModel().c_str(), static_cast<long>(kRoundTokens), static_cast<long>(kWarmTokens));
  for (int64_t num_heads : {1, 4}) {
    Measure("palimpsa", num_heads, num_rounds, [=]() -> std::unique_ptr<Memory> {
      return *PalimpsaMemory::Create({{num_heads, kDim, kDim}, 0.125f, true});
    });
    Measure("vla", num_heads, num_rounds, [=]() -> std::unique_ptr<Memory> {
      return *VlaMemory::Create(
          {num_heads, kDim, kDim, VlaVariant::kVla, false, 0.1, VlaReadNorm::kRms});
    });
    Measure("ovq", num_heads, num_rounds, [=]() -> std::unique_ptr<Memory> {
      return *OvqMemory::Create({num_heads, kDim, kDim, kOvqSlots,
                                 std::vector<float>(static_cast<size_t>(num_heads), 1.0f)});
    });
  }
  return 0;
}

}  // namespace
}  // namespace lethe

int main(int argc, char** argv) {
  const int num_rounds = argc > 1 ? std::atoi(argv[1]) : 21;
  if (num_rounds < 1) {
    std::fprintf(stderr, "rounds must be at least 1\n");
    return 2;
  }
  return lethe::Run(num_rounds);
}
