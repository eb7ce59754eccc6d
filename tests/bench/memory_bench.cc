// Measures the streaming memories of lethe-tiny's bank: Step with one token a call (decode) and 64
// (prefill), Write with 64 (the replay of a Forget). Prints machine, case, shape, median and spread
// over the rounds. Usage: memory_bench [rounds]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
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

enum class Call { kStep, kWrite };

void Advance(const Tokens& tokens, int64_t num_heads, int64_t count, Call call, int64_t call_tokens,
             Memory* memory) {
  std::vector<float> out(static_cast<size_t>(call_tokens * num_heads * kDim));
  for (int64_t t = 0; t < count; t += call_tokens) {
    const MemoryInputs inputs = tokens.Slice(t % kChunkTokens, call_tokens);
    const absl::Status status = call == Call::kStep
                                    ? memory->Step(inputs, call_tokens, absl::MakeSpan(out))
                                    : memory->Write(inputs, call_tokens);
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
      std::exit(1);
    }
  }
}

// Of this thread, so that a busy machine's other work does not count.
double ProcessorSeconds() {
  std::timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Timing {
  const char* name;
  Call call;
  int64_t call_tokens;
  std::vector<double> us_per_token = {};
};

constexpr size_t kWriteTiming = 2;  // of Measure's timings

// Rounds of the ways to advance alternate; the median of Write.
double Measure(const std::string& kind, int64_t num_heads, int num_rounds,
               const std::function<std::unique_ptr<Memory>()>& create) {
  const Tokens tokens(num_heads, kind == "palimpsa", kind == "vla");
  const std::unique_ptr<Memory> memory = create();
  Advance(tokens, num_heads, kWarmTokens, Call::kWrite, kChunkTokens, memory.get());
  const std::unique_ptr<MemorySnapshot> warm = memory->Snapshot();
  Timing timings[] = {{"Step 1", Call::kStep, 1},
                      {"Step 64", Call::kStep, kChunkTokens},
                      {"Write 64", Call::kWrite, kChunkTokens}};
  for (int round = 0; round < num_rounds; ++round) {
    for (Timing& timing : timings) {
      if (!memory->Restore(*warm).ok()) std::exit(1);
      const double start = ProcessorSeconds();
      Advance(tokens, num_heads, kRoundTokens, timing.call, timing.call_tokens, memory.get());
      timing.us_per_token.push_back(1e6 * (ProcessorSeconds() - start) / kRoundTokens);
    }
  }
  for (Timing& timing : timings) {
    std::vector<double>& us = timing.us_per_token;
    std::sort(us.begin(), us.end());
    std::printf("%-9s H=%ld K=V=%ld  %-8s  %7.3f us/token  (min %.3f, max %.3f)\n", kind.c_str(),
                static_cast<long>(num_heads), static_cast<long>(kDim), timing.name,
                us[us.size() / 2], us.front(), us.back());
  }
  const std::vector<double>& writes = timings[kWriteTiming].us_per_token;
  return writes[writes.size() / 2];
}

int Run(int num_rounds) {
  std::printf(
      "machine: %s, one thread, its processor time; %d rounds of %ld tokens after %ld; median\n",
      CpuModel().c_str(), num_rounds, static_cast<long>(kRoundTokens),
      static_cast<long>(kWarmTokens));
  double bank_us = Measure("palimpsa", 4, num_rounds, []() -> std::unique_ptr<Memory> {
    return *PalimpsaMemory::Create({{4, kDim, kDim}, 0.125f, true});
  });
  bank_us += Measure("vla", 2, num_rounds, []() -> std::unique_ptr<Memory> {
    return *VlaMemory::Create({2, kDim, kDim, VlaVariant::kVla, false, 0.1, VlaReadNorm::kRms});
  });
  bank_us += Measure("ovq", 4, num_rounds, []() -> std::unique_ptr<Memory> {
    return *OvqMemory::Create({4, kDim, kDim, kOvqSlots, std::vector<float>(4, 1.0f)});
  });
  std::printf("together, Write 64: %.3f us/token\n", bank_us);
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
