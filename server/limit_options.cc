#include "server/limit_options.h"

#include <algorithm>
#include <fstream>

#include <CLI/CLI.hpp>
#include <unistd.h>

namespace lethe {
namespace {

constexpr int64_t kMib = 1 << 20;

// What this process may use.
int64_t MemoryMib() {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  int64_t limit = 0;  // "max" without one
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && limit > 0) {
    bytes = std::min(bytes, limit);
  }
  return bytes / kMib;
}

void AddTenantOptions(CLI::App* app, Limits* limits) {
  app->add_option("--tenant-streams", limits->tenant_streams, "Streams of one tenant at once")
      ->check(CLI::Range(int64_t{1}, int64_t{512}))
      ->capture_default_str();
  app->add_option("--tenant-calls", limits->tenant_calls,
                  "Calls of one tenant that run or wait at once, 16 erasures not counted")
      ->check(CLI::Range(int64_t{1}, int64_t{512}))
      ->capture_default_str();
  app->add_option("--tenant-sessions", limits->tenant_sessions,
                  "Sessions of one tenant; 0 = as many as --max-sessions")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option(
         "--tenant-mib", limits->tenant_mib,
         "MiB that one tenant's sessions may take in memory and in snapshots on disk until "
         "they take no more inputs; 0 = no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  app->add_option("--tenant-requests-per-second", limits->tenant_requests_per_second,
                  "Calls of one tenant a second, erasures counted by themselves; twice as many at "
                  "once after a rest; 0 = no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}))
      ->capture_default_str();
}

}  // namespace

void AddLimitOptions(CLI::App* app, Limits* limits) {
  app->add_option("--prompt-tokens", limits->prompt_tokens, "Tokens of one prompt or input")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--history-tokens", limits->history_tokens,
                  "Tokens that a model's session may retain; 0 = as many as its model takes")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30))
      ->capture_default_str();
  app->add_option("--deadline-seconds", limits->deadline_seconds,
                  "How long a call may take whose client sets no deadline")
      ->check(CLI::Range(int64_t{1}, int64_t{30} * 24 * 3600))
      ->capture_default_str();
  app->add_option("--streams", limits->streams,
                  "Streams (Generate, ExportSession, ImportSession) that run at once")
      ->check(CLI::Range(int64_t{1}, int64_t{512}))
      ->capture_default_str();
  app->add_option("--queue", limits->queue, "Streams that may wait until they run; 0 = none")
      ->check(CLI::Range(int64_t{0}, int64_t{512}))
      ->capture_default_str();
  app->add_option("--queue-seconds", limits->queue_seconds, "How long a stream waits at most")
      ->check(CLI::Range(int64_t{0}, int64_t{3600}))
      ->capture_default_str();
  AddTenantOptions(app, limits);
}

void SetMemoryDefaults(ServerOptions* options) {
  options->resident_mib = std::clamp<int64_t>(MemoryMib() / 2, 64, options->resident_mib);
  options->stored_input_mib = std::min(options->stored_input_mib, options->resident_mib / 16);
}

}  // namespace lethe
