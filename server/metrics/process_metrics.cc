#include "server/metrics/process_metrics.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <sys/resource.h>
#include <unistd.h>

#include "kernels/base/wall_clock.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

// When this was first asked, which the server does at its start.
double StartSeconds() {
  static const double start = static_cast<double>(NowMicros()) / 1e6;
  return start;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

void WriteProcessMetrics(MetricsPage* page) {
  page->Gauge("process_start_time_seconds", "Start of the process, since 1970.", StartSeconds());
  int64_t num_pages = 0;
  int64_t num_resident_pages = 0;
  if (std::ifstream("/proc/self/statm") >> num_pages >> num_resident_pages) {
    const auto page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
    page->Gauge("process_virtual_memory_bytes", "Mapped memory.",
                static_cast<double>(num_pages) * page_bytes);
    page->Gauge("process_resident_memory_bytes", "Memory in use.",
                static_cast<double>(num_resident_pages) * page_bytes);
  }
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    page->Family("process_cpu_seconds_total", "counter", "Processor time, user and system.");
    page->Sample({}, Seconds(usage.ru_utime) + Seconds(usage.ru_stime));
  }
  std::error_code error;
  const fs::directory_iterator descriptors("/proc/self/fd", error);
  if (!error) {
    page->Gauge("process_open_fds", "Open file descriptors.",
                static_cast<double>(std::distance(begin(descriptors), end(descriptors))));
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    page->Gauge("process_max_fds", "File descriptors that it may open.",
                static_cast<double>(limit.rlim_cur));
  }
}

int64_t DirectoryBytes(const std::string& path) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;  // SQLite's files come and go
    const auto size = entry->is_regular_file(gone) ? entry->file_size(gone) : 0;
    if (!gone) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace lethe
