#include "server/bench/store_bench.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/crypto/ed25519.h"
#include "kernels/base/status_macros.h"
#include "server/bench/report.h"
#include "server/bench/store_world.h"

namespace lethe::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kProbes = 50;

// A line of the report: a name, what it counts in, and the runs.
void PrintSamples(const StoreBenchOptions& options, const std::string& what,
                  const std::string& unit, const Samples& samples) {
  if (options.json) {
    absl::PrintF(
        "{\"bench\":\"store\",\"what\":\"%s\",\"unit\":\"%s\",\"median\":%.4f,\"min\":%.4f,"
        "\"max\":%.4f,\"runs\":%d}\n",
        what, unit, samples.Median(), samples.Min(), samples.Max(), samples.values.size());
  } else {
    absl::PrintF("%-46s %12.3f %12.3f %12.3f  %-12s %d\n", what, samples.Median(), samples.Min(),
                 samples.Max(), unit, samples.values.size());
  }
  std::fflush(stdout);
}

void PrintNumber(const StoreBenchOptions& options, const std::string& what, const std::string& unit,
                 double value) {
  PrintSamples(options, what, unit, {{value}});
}

StoreWorldOptions WorldOptions(const StoreBenchOptions& options, int threads) {
  StoreWorldOptions world;
  world.directory = options.directory + "/data";
  world.max_sessions = options.sessions;
  world.threads = threads;
  return world;
}

absl::StatusOr<std::unique_ptr<StoreWorld>> OpenWorld(const StoreBenchOptions& options,
                                                      int threads) {
  StoreWorldOptions world = WorldOptions(options, threads);
  if (!options.model_directory.empty()) {
    LETHE_ASSIGN_OR_RETURN(world.model, Model::Load(options.model_directory));
  }
  return StoreWorld::Open(world);
}

// Work on 0 ... count - 1, spread over threads; the first error ends it.
absl::Status ForEach(int64_t count, int threads, const std::function<absl::Status(int64_t)>& work) {
  std::atomic<int64_t> next{0};
  std::vector<absl::Status> failed(static_cast<size_t>(threads));
  std::vector<std::thread> workers;
  for (absl::Status& status : failed) {
    workers.emplace_back([&next, &status, &work, count] {
      for (int64_t i = next++; i < count && status.ok(); i = next++) status = work(i);
    });
  }
  for (std::thread& worker : workers) worker.join();
  for (const absl::Status& status : failed) LETHE_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::Status Fill(const StoreBenchOptions& options) {
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<StoreWorld> world,
                         OpenWorld(options, options.threads));
  const double start = Now();
  LETHE_RETURN_IF_ERROR(ForEach(options.sessions, options.threads, [&](int64_t i) {
    return world->AddSession(options.inputs, static_cast<uint64_t>(i));
  }));
  const double seconds = Now() - start;
  PrintNumber(options, "create, with its appends", "ms a session",
              seconds * 1e3 / static_cast<double>(options.sessions));
  const StoreCosts costs = world->store()->costs();
  PrintNumber(options, "create: rows encrypted", "us a row",
              costs.seal.seconds * 1e6 / static_cast<double>(costs.seal.count));
  PrintNumber(options, "create: rows encrypted", "% of the time",
              costs.seal.seconds * 100 / seconds);
  return absl::OkStatus();
}

// Forgets `batch` of the first sessions and says where the time went.
absl::Status MeasureForgets(const StoreBenchOptions& options, StoreWorld* world, int threads,
                            int64_t batch) {
  const std::vector<std::string> ids = world->SessionIds();
  const int64_t count = std::min(options.forgets, static_cast<int64_t>(ids.size()));
  // What a start leaves to the first use is no part of a Forget.
  LETHE_RETURN_IF_ERROR(ForEach(count, threads, [&](int64_t i) {
    return world->Digest(ids[static_cast<size_t>(i)]).status();
  }));
  const StoreCosts before = world->store()->costs();
  Samples latency;
  latency.values.resize(static_cast<size_t>(count));
  std::atomic<int64_t> staged_us{0};
  const double start = Now();
  LETHE_RETURN_IF_ERROR(ForEach(count, threads, [&](int64_t i) -> absl::Status {
    const double begin = Now();
    LETHE_ASSIGN_OR_RETURN(const ForgetReceipt receipt,
                           world->Forget(ids[static_cast<size_t>(i)], batch));
    latency.values[static_cast<size_t>(i)] = (Now() - begin) * 1e3;
    staged_us += receipt.duration_us;
    return absl::OkStatus();
  }));
  const double seconds = Now() - start;
  const StoreCosts after = world->store()->costs();
  const std::string name = absl::StrCat("forget, ", threads, threads == 1 ? " thread" : " threads");
  PrintNumber(options, name, "a minute", static_cast<double>(count) * 60 / seconds);
  PrintSamples(options, name, "ms", latency);
  if (threads != 1)
    return absl::OkStatus();  // with several, waiting for each other is in the parts
  const double per_forget = 1e3 / static_cast<double>(count);
  double rest = seconds;
  const auto part = [&](const std::string& what, double part_seconds) {
    rest -= part_seconds;
    PrintNumber(options, "forget: " + what, "ms", part_seconds * per_forget);
  };
  part("state and digests", static_cast<double>(staged_us) * 1e-6);
  part("new keys synced", after.key_sync.seconds - before.key_sync.seconds);
  part("rows and intent, two transactions", after.transaction.seconds - before.transaction.seconds);
  part("old keys overwritten and synced", after.key_erasure.seconds - before.key_erasure.seconds);
  part("write-ahead log truncated", after.wal_truncation.seconds - before.wal_truncation.seconds);
  PrintNumber(options, "forget: record signed and logged, the rest", "ms", rest * per_forget);
  PrintNumber(options, "forget: rows encrypted (in the above)", "ms",
              (after.seal.seconds - before.seal.seconds) * per_forget);
  return absl::OkStatus();
}

absl::Status MeasureAllForgets(const StoreBenchOptions& options) {
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<StoreWorld> world,
                         OpenWorld(options, options.threads));
  LETHE_RETURN_IF_ERROR(MeasureForgets(options, world.get(), 1, kBatches - 1));
  return MeasureForgets(options, world.get(), options.threads, kBatches - 2);
}

// A start after the last child was killed, and first uses of some sessions; leaves the write-ahead log filled for the
// next one, and snapshots of the states of these sessions.
absl::Status MeasureStart(const StoreBenchOptions& options, int64_t batch, double* open_seconds,
                          double* first_use_ms) {
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<StoreWorld> world, OpenWorld(options, 1));
  *open_seconds = world->open_seconds();
  if (world->summary().num_sessions != options.sessions) {
    return absl::InternalError("a session did not come back");
  }
  const std::vector<std::string> ids = world->SessionIds();
  const double start = Now();
  const size_t count = std::min(ids.size(), size_t{kProbes});
  for (size_t i = 0; i < count; ++i) LETHE_RETURN_IF_ERROR(world->Digest(ids[i]).status());
  *first_use_ms = (Now() - start) * 1e3 / static_cast<double>(count);
  for (size_t i = 0; i < count; ++i) LETHE_RETURN_IF_ERROR(world->Forget(ids[i], batch).status());
  world->SpillAll();
  return absl::OkStatus();
}

// Runs `work` in a child that then ends as if killed; what it returns in `numbers` comes back.
absl::Status InChild(const std::function<absl::Status(double* numbers)>& work, double numbers[2]) {
  int ends[2];
  if (pipe(ends) != 0) return absl::InternalError("pipe failed");
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) return absl::InternalError("fork failed");
  if (child == 0) {
    double mine[2] = {0, 0};
    const absl::Status status = work(mine);
    if (!status.ok()) absl::FPrintF(stderr, "lethe bench: %s\n", std::string(status.message()));
    const bool written = write(ends[1], mine, sizeof mine) == sizeof mine;
    std::fflush(stdout);
    _exit(status.ok() && written ? 0 : 1);
  }
  close(ends[1]);
  const bool read_all = read(ends[0], numbers, 2 * sizeof *numbers) == 2 * sizeof *numbers;
  close(ends[0]);
  int exit_status = 0;
  waitpid(child, &exit_status, 0);
  return read_all && exit_status == 0 ? absl::OkStatus() : absl::InternalError("a child failed");
}

// What a sync costs here: 4 KiB written in place, then fdatasync.
absl::StatusOr<Samples> ProbeSyncs(const std::string& directory) {
  const std::string path = directory + "/probe";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return absl::UnavailableError(absl::StrCat("cannot write in ", directory));
  Samples samples;
  const std::vector<char> page(4096, 'p');
  bool worked = true;
  for (int i = 0; i < kProbes; ++i) {
    const double start = Now();
    worked &= pwrite(file, page.data(), page.size(), 0) == 4096 && fdatasync(file) == 0;
    samples.values.push_back((Now() - start) * 1e3);
  }
  close(file);
  unlink(path.c_str());
  if (!worked) return absl::UnavailableError(absl::StrCat("cannot sync in ", directory));
  return samples;
}

Samples ProbeSignatures() {
  const audit::Ed25519PrivateKey key = audit::Ed25519PrivateKey::Generate();
  const std::string text(1024, 't');
  Samples samples;
  for (int i = 0; i < kProbes; ++i) {
    const double start = Now();
    static_cast<void>(key.Sign(text));
    samples.values.push_back((Now() - start) * 1e3);
  }
  return samples;
}

double BytesIn(const fs::path& directory) {
  double bytes = 0;
  std::error_code error;
  for (const auto& file : fs::recursive_directory_iterator(directory, error)) {
    if (file.is_regular_file(error)) bytes += static_cast<double>(file.file_size(error));
  }
  return bytes;
}

absl::Status RunIn(const StoreBenchOptions& options) {
  if (!options.json) {
    absl::PrintF(
        "machine: %s\nfiles in %s; %d sessions (%s) of %d inputs in %d appends; %d Forgets of %d "
        "inputs each\n\n%-46s %12s %12s %12s  %-12s runs\n",
        MachineName(), options.directory, options.sessions,
        options.model_directory.empty() ? "vectors of 16 dimensions" : options.model_directory,
        options.inputs, kBatches, options.forgets, options.inputs / kBatches, "what", "median",
        "least", "greatest", "unit");
  }
  LETHE_ASSIGN_OR_RETURN(const Samples syncs, ProbeSyncs(options.directory));
  PrintSamples(options, "a sync of 4 KiB", "ms", syncs);
  PrintSamples(options, "a signature (Ed25519)", "ms", ProbeSignatures());
  double numbers[2] = {0, 0};
  LETHE_RETURN_IF_ERROR(InChild([&](double*) { return Fill(options); }, numbers));
  Samples starts;
  Samples first_uses[2];  // evaluated, from snapshots (of a model's sessions)
  for (int run = 0; run < options.runs; ++run) {
    const auto measure = [&](double* mine) {
      return MeasureStart(options, run, &mine[0], &mine[1]);
    };
    LETHE_RETURN_IF_ERROR(InChild(measure, numbers));
    starts.values.push_back(numbers[0]);
    first_uses[run == 0 ? 0 : 1].values.push_back(numbers[1]);
  }
  const auto per_session = [&](const char* folder) {
    return BytesIn(fs::path(options.directory) / "data" / folder) /
           static_cast<double>(options.sessions);
  };
  PrintNumber(options, "sessions/ on disk", "bytes each", per_session("sessions"));
  PrintSamples(options, "start after kill -9: data directory and sessions", "s", starts);
  PrintSamples(options, "first use of a session after it", "ms", first_uses[0]);
  if (!options.model_directory.empty() && options.runs > 1) {
    PrintSamples(options, "the same from snapshots", "ms", first_uses[1]);
  }
  return InChild([&](double*) { return MeasureAllForgets(options); }, numbers);
}

}  // namespace

absl::Status RunStoreBench(const StoreBenchOptions& wanted) {
  StoreBenchOptions options = wanted;
  std::error_code error;
  const bool is_ours = options.directory.empty();
  if (is_ours) {
    std::string pattern = (fs::temp_directory_path() / "lethe-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) return absl::UnavailableError("no temporary directory");
    options.directory = pattern;
  } else if (fs::exists(options.directory, error) && !fs::is_empty(options.directory, error)) {
    return absl::InvalidArgumentError("--data: want a directory that is empty or does not exist");
  }
  fs::create_directories(options.directory, error);
  absl::Status status = RunIn(options);
  if (is_ours) fs::remove_all(options.directory, error);
  return status;
}

}  // namespace lethe::bench
