// DeviceOptions, AddDeviceOptions, AttachDevices: where lethe-server computes its models' sessions.
//
// Equation:  none.
// Shapes:    none.
// Units:     sessions.
// Requires:  AddDeviceOptions: the options outlive app. AttachDevices: the models are loaded, no session is there yet.
// Rejects:   AddDeviceOptions: as ParseOptions. AttachDevices: what the device says, with the model's name.
// Effects:   AttachDevices makes an engine for each model, which every session made afterwards uses, and has the engines
//            wiped with the stacks (server/wiping). When a device fails, `on_failure` is called once.
// Numerics:  device_numerics.h.
// Threads:   one thread.
#ifndef LETHE_SERVER_DEVICE_OPTIONS_H_
#define LETHE_SERVER_DEVICE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/device/device_model_state.h"
#include "server/session_registry/model_set.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lethe {

struct DeviceOptions {
  std::string device = "cpu";  // "cpu", "cpu-batched" or "cuda"
  int32_t num_slots = 64;
  int64_t max_batch = 256;
  int solver_threads = 1;  // ServerOptions::compute_threads

  bool is_batched() const { return device != "cpu"; }
};

void AddDeviceOptions(CLI::App* app, DeviceOptions* options);

// Nothing for "cpu".
absl::StatusOr<std::vector<std::shared_ptr<DeviceBackend>>> AttachDevices(
    const DeviceOptions& options, const ModelSet& models,
    const std::function<void(const absl::Status&)>& on_failure);

}  // namespace lethe

#endif  // LETHE_SERVER_DEVICE_OPTIONS_H_
