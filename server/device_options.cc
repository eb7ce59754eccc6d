#include "server/device_options.h"

#include <utility>

#include <CLI/CLI.hpp>

namespace lethe {

void AddDeviceOptions(CLI::App* app, DeviceOptions* options) {
  app->add_option("--device", options->device,
                  "Where models compute: cpu, each stream on its own; cuda, all streams together "
                  "on the first GPU; cpu-batched, the same together on the CPU, with cpu's bits")
      ->check(CLI::IsMember({"cpu", "cpu-batched", "cuda"}))
      ->capture_default_str();
  app->add_option("--device-slots", options->num_slots,
                  "Sessions of a model whose states are in the device's memory at once; the others "
                  "wait on the host")
      ->check(CLI::Range(1, 65'536))
      ->capture_default_str();
  app->add_option("--device-batch", options->max_batch,
                  "Streams of a model that a step of the device takes a token of")
      ->check(CLI::Range(int64_t{1}, int64_t{4'096}))
      ->capture_default_str();
}

}  // namespace lethe
