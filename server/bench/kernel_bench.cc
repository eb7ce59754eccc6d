#include "server/bench/kernel_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "server/bench/kernel_peers.h"
#include "server/bench/report.h"

namespace lethe::bench {
namespace {

// The first one is the ceiling; the second tells what of it is left for states of that size, as of 256 sessions at D = 64.
constexpr size_t kCopyBytes[] = {size_t{1} << 30, size_t{128} << 20};
constexpr int kWarmUpRuns = 3;
// A measurement spans this long, so that the start of a kernel and of the clock weigh nothing in one of microseconds.
constexpr double kSecondsMin = 1e-3;
constexpr int kRepeatsMax = 100;

std::string DeviceName(DeviceKind kind) {
  for (const Device& device : DescribeDevices()) {
    if (device.kind == kind) return device.name;
  }
  return "unknown device";
}

// A copy inside the device, read and written bytes counted.
class CopyCase : public KernelCase {
 public:
  explicit CopyCase(size_t bytes) : bytes_(bytes) {}

  std::string kernel() const override { return "copy"; }
  std::string shape() const override { return std::to_string(bytes_ >> 20) + " MiB"; }
  double tokens() const override { return 0.0; }
  double state_bytes() const override { return 2.0 * static_cast<double>(bytes_); }

  absl::Status Prepare(Queue* queue) override {
    const std::vector<float> values(bytes_ / sizeof(float), 1.5f);
    LETHE_ASSIGN_OR_RETURN(from_, DeviceArray<float>::From(queue, values));
    LETHE_ASSIGN_OR_RETURN(to_, DeviceArray<float>::Zeros(queue, values.size()));
    return absl::OkStatus();
  }
  absl::Status Run(Queue* queue) override {
    return queue->CopyOnDevice(from_.data(), bytes_, to_.data());
  }

 private:
  size_t bytes_;
  DeviceArray<float> from_;
  DeviceArray<float> to_;
};

// Seconds of a run, each of `runs` values the mean of as many runs in a row as fill kSecondsMin.
absl::StatusOr<Samples> Measure(Queue* queue, KernelCase* kernel_case, int runs) {
  LETHE_RETURN_IF_ERROR(kernel_case->Prepare(queue));
  int repeats = 1;
  const auto run_repeatedly = [&]() -> absl::Status {
    for (int repeat = 0; repeat < repeats; ++repeat) {
      LETHE_RETURN_IF_ERROR(kernel_case->Run(queue));
    }
    return absl::OkStatus();
  };
  double once = 0.0;
  for (int run = 0; run < kWarmUpRuns; ++run) {
    LETHE_ASSIGN_OR_RETURN(once, queue->Time(run_repeatedly));
  }
  repeats = static_cast<int>(std::clamp(std::ceil(kSecondsMin / once), 1.0, double{kRepeatsMax}));
  Samples seconds;
  for (int run = 0; run < runs; ++run) {
    LETHE_ASSIGN_OR_RETURN(const double took, queue->Time(run_repeatedly));
    seconds.values.push_back(took / repeats);
  }
  LETHE_RETURN_IF_ERROR(queue->Finish());
  return seconds;
}

void Print(const KernelCase& kernel_case, const Samples& seconds, double copy_rate, bool json) {
  const double median = seconds.Median();
  const double token_rate = kernel_case.tokens() / median;
  const double byte_rate = kernel_case.state_bytes() / median;
  if (json) {
    std::printf(
        "{\"bench\":\"kernels\",\"kernel\":\"%s\",\"shape\":\"%s\",\"runs\":%zu,\"median_s\":%.9g,"
        "\"min_s\":%.9g,\"max_s\":%.9g,\"tokens_per_s\":%.9g,\"state_bytes_per_s\":%.9g,"
        "\"of_copy\":%.4f}\n",
        kernel_case.kernel().c_str(), kernel_case.shape().c_str(), seconds.values.size(), median,
        seconds.Min(), seconds.Max(), token_rate, byte_rate, byte_rate / copy_rate);
    return;
  }
  std::printf("%-34s %-26s %10.4f %10.4f %10.4f", kernel_case.kernel().c_str(),
              kernel_case.shape().c_str(), 1e3 * median, 1e3 * seconds.Min(), 1e3 * seconds.Max());
  if (kernel_case.tokens() > 0.0) {
    std::printf(" %10.3f", 1e-6 * token_rate);
  } else {
    std::printf(" %10s", "");
  }
  if (kernel_case.state_bytes() > 0.0) {
    std::printf(" %9.3f %5.1f %%", 1e-12 * byte_rate, 1e2 * byte_rate / copy_rate);
  }
  std::printf("\n");
}

// The peers of a case under it, with how many times faster ours is.
void PrintPeers(const KernelCase& kernel_case, double median, const std::vector<KernelPeer>& peers,
                bool json) {
  for (const KernelPeer& peer : peers) {
    if (peer.kernel != kernel_case.kernel() || peer.shape != kernel_case.shape()) continue;
    if (json) {
      std::printf("%s\n", peer.json.c_str());
      continue;
    }
    std::printf("  %-59s %10.4f %10.4f %10.4f %10.3f", (peer.peer + ", " + peer.dtype).c_str(),
                1e3 * peer.median_s, 1e3 * peer.min_s, 1e3 * peer.max_s, 1e-6 * peer.tokens_per_s);
    if (peer.state_bytes_per_s > 0.0) std::printf(" %9.3f", 1e-12 * peer.state_bytes_per_s);
    const double ratio = kernel_case.tokens() / median / peer.tokens_per_s;
    std::printf("  ours: %.2f x\n", ratio);
  }
}

std::vector<KernelPeer> PeersOf(const KernelBenchOptions& options) {
  if (!options.with_peers || options.device != DeviceKind::kCuda) return {};
  auto peers = MeasurePeers(options.peers_script, options.filter, options.runs);
  if (peers.ok()) return *std::move(peers);
  std::fprintf(stderr, "%s\n", std::string(peers.status().message()).c_str());
  return {};
}

void PrintHead(const KernelBenchOptions& options) {
  const std::string device = DeviceName(options.device);
  if (options.json) {
    std::printf("{\"bench\":\"machine\",\"machine\":\"%s\",\"device\":\"%s\"}\n",
                MachineName().c_str(), device.c_str());
    return;
  }
  std::printf("machine: %s\ndevice: %s; medians of %d runs, H = 16 heads, f32 states\n\n",
              MachineName().c_str(), device.c_str(), options.runs);
  std::printf("%-34s %-26s %10s %10s %10s %10s %9s %7s\n", "kernel", "shape", "median ms", "least",
              "greatest", "Mtok/s", "TB/s", "of copy");
}

}  // namespace

absl::Status RunKernelBench(const KernelBenchOptions& options) {
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<Queue> queue, Queue::Create(options.device));
  KernelCases cases;
  AddPalimpsaCases(&cases);
  AddVlaCases(&cases);
  AddVlaChunkCases(&cases);
  AddOvqCases(&cases);
  AddSvReadCases(&cases);
  AddLocalCases(&cases);
  AddSvddCases(&cases);
  PrintHead(options);
  const std::vector<KernelPeer> peers = PeersOf(options);
  double copy_rate = 0.0;
  for (const size_t bytes : kCopyBytes) {
    CopyCase copy(bytes);
    LETHE_ASSIGN_OR_RETURN(const Samples seconds, Measure(queue.get(), &copy, options.runs));
    if (copy_rate == 0.0) copy_rate = copy.state_bytes() / seconds.Median();
    Print(copy, seconds, copy_rate, options.json);
  }
  for (std::unique_ptr<KernelCase>& kernel_case : cases) {
    const std::string name = kernel_case->kernel() + " " + kernel_case->shape();
    if (name.find(options.filter) == std::string::npos) continue;
    LETHE_ASSIGN_OR_RETURN(const Samples seconds,
                           Measure(queue.get(), kernel_case.get(), options.runs));
    Print(*kernel_case, seconds, copy_rate, options.json);
    PrintPeers(*kernel_case, seconds.Median(), peers, options.json);
    std::fflush(stdout);
    LETHE_RETURN_IF_ERROR(kernel_case->Check());
    kernel_case.reset();  // its memory is the next one's
  }
  return absl::OkStatus();
}

}  // namespace lethe::bench
