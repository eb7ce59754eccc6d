#include "server/bench/device_bench.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <utility>
#include <variant>

#include "absl/strings/match.h"

#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_batch.h"
#include "server/bench/device_models.h"
#include "server/bench/report.h"
#include "server/device/device_forward.h"
#include "server/device/slot_layout.h"
#include "server/device/sv_session.h"

namespace lethe::bench {
namespace {

constexpr int64_t kMaxTokens = 4096;  // of a call
constexpr int kWarmUpSteps = 4;
constexpr size_t kStepsMin = 5;
constexpr size_t kStepsMax = 400;

// What a step must move of one session's state: folds read and write theirs, windows and dictionaries are
// read, of a dictionary the slots that are filled.
double StateBytesMoved(const ModelConfig& config, int64_t num_tokens) {
  const SlotLayout layout(config);
  double bytes = 0.0;
  const auto add = [&](const std::vector<SlotPart>& parts, double times) {
    for (const SlotPart& part : parts) bytes += times * static_cast<double>(part.bytes);
  };
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerParts& layer = layout.layers()[i];
    add(layer.own, 1.0);
    const auto* memory = std::get_if<MemoryLayerConfig>(&config.layers[i]);
    if (memory == nullptr) continue;
    for (size_t g = 0; g < memory->groups.size(); ++g) {
      const GroupConfig& group = memory->groups[g];
      if (group.kind == MemoryKind::kOvq) {
        const auto row = static_cast<double>(group.heads * (group.key_dim + group.value_dim) * 4);
        bytes += row * static_cast<double>(OvqFilledSlots(OvqShapeOf(group), num_tokens) +
                                           kOvqChunkTokens / 2);
      } else {
        add(layer.groups[g], group.kind == MemoryKind::kWindow ? 1.0 : 2.0);
      }
    }
  }
  return bytes;
}

constexpr int64_t kSolverThreads = 16;  // where there are as many cores

class DeviceBench {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceBench>> Create(Queue* queue,
                                                             const DeviceBenchOptions& options,
                                                             const std::string& config_json) {
    std::unique_ptr<DeviceBench> bench(new DeviceBench(options));
    LETHE_ASSIGN_OR_RETURN(const auto model, MakeBf16Model(config_json));
    LETHE_ASSIGN_OR_RETURN(bench->model_, DeviceModel::Create(queue, model));
    const int32_t most = *std::max_element(options.batches.begin(), options.batches.end());
    LETHE_ASSIGN_OR_RETURN(bench->pool_, StatePool::Create(bench->model_.get(), most));
    return bench;
  }

  absl::Status Run() {
    PrintModel();
    for (const bool uses_graphs : options_.uses_graphs) {
      forward_ = nullptr;  // before the next one: both would need the room
      LETHE_ASSIGN_OR_RETURN(forward_, DeviceForward::Create(model_.get(), pool_.get(),
                                                             {kMaxTokens, pool_->num_slots(),
                                                              uses_graphs, kSolverThreads}));
      std::printf("  steps %s\n", uses_graphs ? "recorded" : "launched one by one");
      for (const int32_t batch : options_.batches) LETHE_RETURN_IF_ERROR(RunBatch(batch));
      LETHE_RETURN_IF_ERROR(forward_->Wipe());
    }
    return absl::OkStatus();
  }

 private:
  explicit DeviceBench(const DeviceBenchOptions& options) : options_(options) {}

  void PrintModel() const {
    const ModelConfig& config = model_->model().config();
    std::printf(
        "%s: %zu layers, width %lld, %.1f M weights in %.1f MB, %.3f MB of state a session\n",
        config.name.c_str(), config.layers.size(), static_cast<long long>(config.width),
        1e-6 * static_cast<double>(config.num_parameters),
        1e-6 * static_cast<double>(model_->weight_bytes()),
        1e-6 * static_cast<double>(model_->slot_bytes()));
    std::printf("  %5s %9s %9s %10s %10s %9s %7s %11s %11s\n", "B", "ms/step", "+logits", "tok/s",
                "+logits", "MB moved", "bound", "prefill ms", "tok/s");
  }

  absl::Status RunBatch(int32_t batch) {
    const ModelConfig& config = model_->model().config();
    const auto sessions = static_cast<size_t>(batch);
    slots_.resize(sessions);
    ranks_.assign(sessions, 0);
    logits_.resize(sessions * static_cast<size_t>(config.vocab_size));
    for (int32_t& slot : slots_) {
      LETHE_ASSIGN_OR_RETURN(slot, pool_->Allocate());
    }
    for (size_t i = 0; HasSvGroups(config) && i < sessions; ++i) {
      LETHE_ASSIGN_OR_RETURN(sv_.emplace_back(),
                             SvSession::Create(model_.get(), {model_, &config}));
    }
    slowest_ = 0.0;
    LETHE_RETURN_IF_ERROR(Prefill(options_.prefix_tokens));  // touches everything once
    const double warm = Now();
    LETHE_RETURN_IF_ERROR(Prefill(options_.prefix_tokens));
    const double prefill = Now() - warm;
    LETHE_ASSIGN_OR_RETURN(const double bare, MeasureSteps(false));
    const double bytes = static_cast<double>(model_->weight_bytes()) -
                         static_cast<double>(config.vocab_size * config.width * 4) +
                         batch * StateBytesMoved(config, ranks_[0]);
    LETHE_ASSIGN_OR_RETURN(const double with_logits, MeasureSteps(true));
    std::printf("  %5d %9.3f %9.3f %10.0f %10.0f %9.1f %5.1f %% %11.3f %11.0f\n", batch, 1e3 * bare,
                1e3 * with_logits, batch / bare, batch / with_logits, 1e-6 * bytes,
                1e2 * bytes / options_.bound_bytes_per_s / bare, 1e3 * prefill,
                batch * static_cast<double>(options_.prefix_tokens) / prefill);
    std::fflush(stdout);
    if (HasSvGroups(config)) {
      std::printf(
          "        slowest step %.3f ms (at a boundary %d gates are solved), %.1f MB of support\n",
          1e3 * slowest_, batch, 1e-6 * static_cast<double>(SvBytes()));
    }
    std::fflush(stdout);
    for (const int32_t slot : slots_) LETHE_RETURN_IF_ERROR(pool_->Free(slot));
    sv_.clear();
    return absl::OkStatus();
  }

  // The next `count` tokens of every session, in calls of as many sessions as a call takes.
  absl::Status Prefill(int64_t count) {
    const size_t of_call = std::max<size_t>(1, static_cast<size_t>(kMaxTokens / count));
    for (size_t first = 0; first < slots_.size(); first += of_call) {
      const size_t end = std::min(first + of_call, slots_.size());
      LETHE_RETURN_IF_ERROR(Evaluate(first, end, count, false));
    }
    return absl::OkStatus();
  }

  // Seconds of the median step.
  absl::StatusOr<double> MeasureSteps(bool with_logits) {
    for (int i = 0; i < kWarmUpSteps; ++i) {
      LETHE_RETURN_IF_ERROR(Evaluate(0, slots_.size(), 1, with_logits));
    }
    Samples seconds;
    const double begin = Now();
    while (seconds.values.size() < kStepsMin ||
           (seconds.values.size() < kStepsMax && Now() - begin < options_.seconds)) {
      const double began = Now();
      LETHE_RETURN_IF_ERROR(Evaluate(0, slots_.size(), 1, with_logits));
      seconds.values.push_back(Now() - began);
      slowest_ = std::max(slowest_, seconds.values.back());
    }
    return seconds.Median();
  }

  absl::Status Evaluate(size_t first, size_t end, int64_t count, bool with_logits) {
    const ModelConfig& config = model_->model().config();
    const auto num_ids = static_cast<size_t>(count);
    ids_.resize((end - first) * num_ids);
    for (int32_t& id : ids_) {
      id = static_cast<int32_t>(random_() % static_cast<uint64_t>(config.vocab_size));
    }
    sequences_.clear();
    for (size_t i = first; i < end; ++i) {
      ForwardSequence sequence;
      sequence.slot = slots_[i];
      sequence.rank = ranks_[i];
      if (!sv_.empty()) sequence.sv = sv_[i].get();
      sequence.vocab_ids = absl::MakeConstSpan(ids_).subspan((i - first) * num_ids, num_ids);
      if (with_logits) {
        sequence.logits = logits_.data() + i * static_cast<size_t>(config.vocab_size);
      }
      sequences_.push_back(sequence);
      ranks_[i] += count;
    }
    LETHE_ASSIGN_OR_RETURN(const std::vector<absl::Status> statuses,
                           forward_->Evaluate(sequences_));
    for (const absl::Status& status : statuses) LETHE_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  DeviceBenchOptions options_;
  size_t SvBytes() const {
    size_t bytes = 0;
    for (const std::unique_ptr<SvSession>& session : sv_) bytes += session->device_bytes();
    return bytes;
  }

  std::shared_ptr<DeviceModel> model_;
  std::unique_ptr<StatePool> pool_;
  std::unique_ptr<DeviceForward> forward_;
  std::mt19937_64 random_{1};
  std::vector<std::unique_ptr<SvSession>> sv_;  // of a model with sv groups
  double slowest_ = 0.0;                        // step of this batch
  std::vector<int32_t> slots_;
  std::vector<int64_t> ranks_;
  std::vector<int32_t> ids_;
  std::vector<float> logits_;
  std::vector<ForwardSequence> sequences_;
};

}  // namespace

absl::Status RunDeviceBench(const DeviceBenchOptions& options) {
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<Queue> queue, Queue::Create(options.device));
  std::printf("machine: %s; device: %s; %lld tokens before the steps\n", MachineName().c_str(),
              DescribeDevices().back().name.c_str(), static_cast<long long>(options.prefix_tokens));
  for (const DeviceBenchModel& model : DeviceBenchModels()) {
    if (!absl::StrContains(model.name, options.filter)) continue;
    LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceBench> bench,
                           DeviceBench::Create(queue.get(), options, model.config_json));
    LETHE_RETURN_IF_ERROR(bench->Run());
  }
  return absl::OkStatus();
}

}  // namespace lethe::bench
