#include "server/rpc/core_metrics.h"

#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"

#include "memory/svdd/fallback.h"
#include "server/metrics/process_metrics.h"

namespace lethe {
namespace {

struct SessionSums {
  int64_t num_resident = 0;
  int64_t num_unavailable = 0;
  int64_t num_inputs = 0;
  int64_t state_bytes = 0;
  int64_t snapshot_bytes = 0;
  int64_t stored_input_bytes = 0;
  int64_t disk_snapshot_bytes = 0;
};

SessionSums Sum(const SessionRegistry& sessions) {
  SessionSums sums;
  for (const auto& entry : sessions.List("", std::numeric_limits<size_t>::max())) {
    const SessionInfo info = entry->Info();
    if (info.state_bytes > 0) ++sums.num_resident;
    if (!entry->Availability().ok()) ++sums.num_unavailable;
    sums.num_inputs += info.num_inputs;
    sums.state_bytes += info.state_bytes;
    sums.snapshot_bytes += info.snapshot_bytes;
    sums.stored_input_bytes += info.stored_input_bytes;
    if (entry->journal != nullptr) sums.disk_snapshot_bytes += entry->journal->snapshot_bytes();
  }
  return sums;
}

void WriteSessions(const SessionRegistry& sessions, MetricsPage* page) {
  const SessionSums sums = Sum(sessions);
  const auto gauge = [page](absl::string_view name, absl::string_view help, int64_t value) {
    page->Gauge(name, help, static_cast<double>(value));
  };
  gauge("lethe_sessions", "Sessions that exist.", sessions.num_sessions());
  gauge("lethe_resident_sessions", "Sessions whose state is in memory.", sums.num_resident);
  gauge("lethe_unavailable_sessions", "Sessions that are quarantined or wait for their model.",
        sums.num_unavailable);
  gauge("lethe_inputs", "Inputs that sessions retain.", sums.num_inputs);
  page->Family(
      "lethe_session_bytes", "gauge",
      "Bytes of sessions: states, snapshots and stored inputs in memory, snapshots on disk.");
  const auto bytes = [page](absl::string_view kind, int64_t value) {
    page->Sample({{"kind", kind}}, static_cast<double>(value));
  };
  bytes("state", sums.state_bytes);
  bytes("snapshot", sums.snapshot_bytes);
  bytes("stored_input", sums.stored_input_bytes);
  bytes("disk_snapshot", sums.disk_snapshot_bytes);
}

void WriteLoad(const ServerCore& core, MetricsPage* page) {
  const CallAdmission::Counts counts = core.admission->counts();
  page->Gauge("lethe_running_calls", "Calls that run.", static_cast<double>(counts.calls));
  page->Gauge("lethe_running_streams", "Streams among them.", static_cast<double>(counts.streams));
  page->Gauge("lethe_waiting_streams", "Streams that wait until they may run.",
              static_cast<double>(counts.waiting));
  page->Gauge("lethe_compute_slots", "Evaluations that may run at once.",
              core.scheduler.num_slots());
  page->Gauge("lethe_compute_waiting", "Evaluations that wait for a slot.",
              core.scheduler.num_waiting());
  page->Counter("lethe_slow_canonical_solves_total",
                "Support-vector solves that took the slow, double-double way.",
                svdd::NumFallbacks());
}

void WriteStepSizes(const ServerCore& core, MetricsPage* page) {
  page->Family("lethe_device_step_streams", "histogram",
               "Streams that a pass over the model took a token of.");
  for (const std::shared_ptr<DeviceBackend>& backend : core.devices) {
    const DeviceEngine::Counters counters = backend->engine()->counters();
    const std::string& model = backend->engine()->model().config().name;
    int64_t count = 0;
    for (size_t i = 0; i < counters.steps_by_decoders.size(); ++i) {
      count += counters.steps_by_decoders[i];
      const std::string bound =
          i < DeviceEngine::kStepSizes.size() ? absl::StrCat(DeviceEngine::kStepSizes[i]) : "+Inf";
      page->Sample({{"model", model}, {"le", bound}}, static_cast<double>(count), "_bucket");
    }
    page->Sample({{"model", model}}, static_cast<double>(counters.num_decoded), "_sum");
    page->Sample({{"model", model}}, static_cast<double>(count), "_count");
  }
}

void WriteDevices(const ServerCore& core, MetricsPage* page) {
  if (core.devices.empty()) return;
  const auto family = [&](absl::string_view name, absl::string_view type, absl::string_view help,
                          const std::function<int64_t(const DeviceEngine&)>& value) {
    page->Family(name, type, help);
    for (const std::shared_ptr<DeviceBackend>& backend : core.devices) {
      const DeviceEngine& engine = *backend->engine();
      page->Sample({{"model", engine.model().config().name}}, static_cast<double>(value(engine)));
    }
  };
  family("lethe_device_slots", "gauge", "Sessions whose states fit into the device's memory.",
         [](const DeviceEngine& engine) { return engine.options().num_slots; });
  family("lethe_device_slots_in_use", "gauge", "Sessions whose states are in the device's memory.",
         [](const DeviceEngine& engine) { return engine.counters().slots_in_use; });
  family("lethe_device_spills_total", "counter", "States that moved to the host for others.",
         [](const DeviceEngine& engine) { return engine.counters().num_spills; });
  family("lethe_device_steps_total", "counter", "Passes over the model.",
         [](const DeviceEngine& engine) { return engine.counters().num_steps; });
  family("lethe_device_tokens_total", "counter", "Tokens that these took in.",
         [](const DeviceEngine& engine) { return engine.counters().num_tokens; });
  WriteStepSizes(core, page);
}

void WriteLog(const ServerCore& core, const MetricsPlaces& places, MetricsPage* page) {
  if (core.trail.log != nullptr) {
    page->Gauge("lethe_audit_log_leaves", "Records in the audit log.",
                static_cast<double>(core.trail.log->num_leaves()));
    page->Gauge("lethe_audit_log_frozen", "1 when nothing can be recorded any more.",
                core.trail.log->frozen().ok() ? 0 : 1);
  }
  page->Family("lethe_disk_bytes", "gauge", "Bytes on disk.");
  const auto bytes = [page](absl::string_view part, const std::string& path) {
    page->Sample({{"part", part}}, static_cast<double>(DirectoryBytes(path)));
  };
  if (!places.data_directory.empty()) {
    bytes("audit_log", absl::StrCat(places.data_directory, "/log"));
    bytes("sessions", absl::StrCat(places.data_directory, "/sessions"));
  }
  if (!places.erasure_ledger.empty()) bytes("erasure_ledger", places.erasure_ledger);
}

}  // namespace

std::string CoreMetrics(const ServerCore& core, const MetricsPlaces& places) {
  MetricsPage page;
  page.Family("lethe_build_info", "gauge", "1, with what runs.");
  page.Sample({{"version", places.version}}, 1);
  core.metrics->WriteTo(&page);
  WriteLoad(core, &page);
  WriteDevices(core, &page);
  WriteSessions(core.sessions, &page);
  WriteLog(core, places, &page);
  WriteProcessMetrics(&page);
  return page.text();
}

}  // namespace lethe
