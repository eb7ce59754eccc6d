#include "tests/soak/soak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "kernels/base/check.h"
#include "tests/audit/temp_directory.h"
#include "tests/integration/server_program.h"
#include "tests/server/serving_testing.h"
#include "tests/soak/canary.h"
#include "tests/soak/soak_client.h"
#include "tests/soak/soak_log.h"

namespace lethe::soak {
namespace {

using Clock = std::chrono::steady_clock;

// One in so many sessions is compared with a fresh one at the end, and at least this many.
constexpr int kSampleOneIn = 4;
constexpr int kSampleMin = 8;
// For connections that were dropped to be closed on the server's side.
constexpr std::chrono::seconds kSettleMost{60};

class Soak {
 public:
  explicit Soak(const SoakOptions& options);
  SoakReport Run();

 private:
  void Start();
  void RunRound(int round);
  // Runs `work` on every client at once.
  void ForEach(const std::function<void(SoakClient*, int)>& work);
  bool IsSettled(const ProcessSample& sample) const;
  ProcessSample Settle();
  void CheckMemory();
  void CheckLog();
  void Stop();

  const SoakOptions options_;
  const audit::TempDirectory directory_{audit::TempDirectory::Where::kMemory};
  SoakLog log_;
  std::unique_ptr<testing::Program> program_;
  std::vector<std::unique_ptr<SoakClient>> clients_;
  std::vector<ProcessSample> samples_;
  std::atomic<int64_t> num_steps_{0};
};

Soak::Soak(const SoakOptions& options) : options_(options) { Start(); }

void Soak::Start() {
  const std::string directory = directory_.path();
  testing::WriteTinyModel(directory + "/model", "tiny");
  program_ = std::make_unique<testing::Program>(
      std::vector<std::string>{"--model", directory + "/model", "--data", directory + "/data",
                               "--listen", "127.0.0.1:0", "--resident-mib",
                               absl::StrCat(options_.resident_mib), "--max-sessions",
                               absl::StrCat(2 * options_.num_sessions),
                               "--tenant-requests-per-second", "0", "--log-level", "debug"},
      directory + "/stderr");
  const std::string address = program_->ReadAddress();
  LETHE_CHECK(!address.empty());
  for (int i = 0; i < options_.num_sessions; ++i) {
    clients_.push_back(std::make_unique<SoakClient>(address, i, options_.seed, &log_));
  }
}

void Soak::ForEach(const std::function<void(SoakClient*, int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < options_.num_sessions; ++i) {
    threads.emplace_back([&, i] { work(clients_[static_cast<size_t>(i)].get(), i); });
  }
  for (std::thread& thread : threads) thread.join();
}

void Soak::RunRound(int round) {
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(options_.seconds / options_.num_rounds));
  ForEach([&](SoakClient* client, int /*index*/) {
    // At least one: a busy machine may take a round's time to start the threads.
    do {
      client->Step();
      ++num_steps_;
    } while (Clock::now() < end && log_.num_complaints() < 100);
  });
  samples_.push_back(Settle());
  const ProcessSample& sample = samples_.back();
  if (options_.print_rounds) {
    std::cout << absl::StrFormat(
                     "round %d: %d steps, %.1f MiB resident, %d descriptors, %d threads\n",
                     round + 1, num_steps_.load(),
                     static_cast<double>(sample.resident_bytes) / (1 << 20), sample.num_descriptors,
                     sample.num_threads)
              << std::flush;
  }
}

bool Soak::IsSettled(const ProcessSample& sample) const {
  if (samples_.empty()) return false;
  return sample.num_descriptors <= samples_.front().num_descriptors + kSlack &&
         sample.num_threads <= samples_.front().num_threads + kSlack;
}

// The first round: until nothing has moved for a while.
ProcessSample Soak::Settle() {
  const auto end = Clock::now() + kSettleMost;
  ProcessSample last;
  int num_equal = 0;
  while (Clock::now() < end) {
    const ProcessSample sample = SampleProcess(program_->process());
    const bool is_equal =
        sample.num_descriptors == last.num_descriptors && sample.num_threads == last.num_threads;
    num_equal = is_equal ? num_equal + 1 : 0;
    last = sample;
    if (samples_.empty() ? num_equal == 20 : IsSettled(sample)) return sample;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (!samples_.empty()) {
    log_.Complain(absl::StrCat(
        "a silent server holds ", last.num_descriptors, " descriptors and ", last.num_threads,
        " threads, after the first round ", samples_.front().num_descriptors, " and ",
        samples_.front().num_threads, ": ", DescribeDescriptors(program_->process())));
  }
  return last;
}

int64_t MedianResident(std::vector<ProcessSample>::const_iterator begin,
                       std::vector<ProcessSample>::const_iterator end) {
  std::vector<int64_t> bytes;
  for (; begin != end; ++begin) bytes.push_back(begin->resident_bytes);
  std::nth_element(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(bytes.size() / 2),
                   bytes.end());
  return bytes[bytes.size() / 2];
}

void Soak::CheckMemory() {
  const auto third = static_cast<ptrdiff_t>(samples_.size() / 3);
  if (third == 0) return;
  const int64_t before = MedianResident(samples_.end() - 2 * third, samples_.end() - third);
  const int64_t after = MedianResident(samples_.end() - third, samples_.end());
  const double growth = static_cast<double>(after) / static_cast<double>(before) - 1;
  log_.Count(absl::StrFormat("per cent of growth of resident memory in hundredths"),
             static_cast<int64_t>(growth * 1e4));
  if (!options_.check_memory || options_.seconds < 60 * kLeakMinutes) return;
  if (growth > kGrowthMax) {
    log_.Complain(absl::StrFormat("resident memory grows from %d to %d bytes", before, after));
  }
}

void Soak::CheckLog() {
  const std::string text = audit::ReadFile(directory_.path() + "/stderr");
  if (!ForeignCanary(text, -1).empty()) log_.Complain("the server's log holds content");
  for (const char* word :
       {"ERROR: ", "WARNING: ThreadSanitizer", "AddressSanitizer", "runtime error"}) {
    if (absl::StrContains(text, word)) {
      log_.Complain(
          absl::StrCat("the server's log has ", word, ": ", text.substr(text.find(word), 4000)));
    }
  }
}

void Soak::Stop() {
  clients_.clear();
  program_->Signal(SIGTERM);
  const int status = program_->Wait();
  if (status != 0) log_.Complain(absl::StrCat("the server ended with status ", status));
  CheckLog();
}

SoakReport Soak::Run() {
  for (int round = 0; round < options_.num_rounds; ++round) RunRound(round);
  const int sample = std::max(kSampleMin, options_.num_sessions / kSampleOneIn);
  std::vector<bool> is_sampled(static_cast<size_t>(options_.num_sessions), false);
  std::mt19937_64 random(options_.seed);
  for (int i = 0; i < sample; ++i) is_sampled[random() % is_sampled.size()] = true;
  ForEach([&](SoakClient* client, int index) {
    client->Check(is_sampled[static_cast<size_t>(index)]);
  });
  CheckMemory();
  Stop();
  SoakReport report;
  report.counts = log_.Text();
  report.samples = samples_;
  report.complaints = log_.complaints();
  report.num_complaints = log_.num_complaints();
  report.num_steps = num_steps_;
  report.num_states = log_.CountOf("states compared with fresh ones");
  return report;
}

}  // namespace

SoakReport RunSoak(const SoakOptions& options) { return Soak(options).Run(); }

}  // namespace lethe::soak
