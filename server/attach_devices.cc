// AttachDevices (device_options.h).
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/device/device_numerics.h"
#include "server/device_options.h"
#include "server/diagnostics/log.h"
#include "server/wiping/dead_stacks.h"

namespace lethe {

absl::StatusOr<std::vector<std::shared_ptr<DeviceBackend>>> AttachDevices(
    const DeviceOptions& options, const ModelSet& models,
    const std::function<void(const absl::Status&)>& on_failure) {
  std::vector<std::shared_ptr<DeviceBackend>> backends;
  if (!options.is_batched()) return backends;
  EngineOptions engine_options;
  engine_options.device = options.device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
  engine_options.num_slots = options.num_slots;
  engine_options.max_batch = options.max_batch;
  engine_options.solver_threads = std::min(options.solver_threads, 256);
  engine_options.on_failure = on_failure;
  LETHE_ASSIGN_OR_RETURN(const Numerics numerics, MeasureNumerics(engine_options.device));
  for (const auto& [name, model] : models.models()) {
    absl::StatusOr<std::shared_ptr<DeviceEngine>> engine =
        DeviceEngine::Create(model, engine_options);
    if (!engine.ok()) {
      return absl::Status(engine.status().code(),
                          absl::StrCat("--device ", options.device, ": model ", name, ": ",
                                       engine.status().message()));
    }
    LogInfo(absl::StrCat("model ", name, " computes on ", numerics.device_kind, ": ",
                         options.num_slots, " slots of ", (*engine)->slot_bytes(), " bytes, ",
                         options.max_batch, " streams a step"));
    AlsoWipe([engine = std::weak_ptr<DeviceEngine>(*engine)]() {
      const std::shared_ptr<DeviceEngine> alive = engine.lock();
      return alive == nullptr ? absl::OkStatus() : alive->Wipe();
    });
    auto backend = std::make_shared<DeviceBackend>(*std::move(engine), numerics);
    model->AttachBackend(backend);
    backends.push_back(std::move(backend));
  }
  return backends;
}

}  // namespace lethe
