#include "server/device/device_numerics.h"

#include <memory>
#include <thread>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"
#include "server/device/device_engine.h"
#include "server/device/device_model.h"
#include "server/model/synthetic_model.h"

namespace lethe {
namespace {

absl::Status AddSession(DeviceEngine* engine, absl::Span<const int32_t> vocab_ids, size_t piece,
                        ByteWriter* out) {
  const auto vocab_size = static_cast<size_t>(engine->model().config().vocab_size);
  const std::unique_ptr<EngineState> state = engine->NewState();
  std::vector<float> logits(vocab_ids.size() * vocab_size);
  for (size_t first = 0; first < vocab_ids.size(); first += piece) {
    const absl::Span<const int32_t> ids = vocab_ids.subspan(first, piece);
    const absl::Span<float> after_each =
        absl::MakeSpan(logits).subspan(first * vocab_size, ids.size() * vocab_size);
    LETHE_RETURN_IF_ERROR(engine->Evaluate(state.get(), ids, {}, after_each));
  }
  out->Array(absl::MakeConstSpan(logits));
  audit::StateParts parts;
  LETHE_RETURN_IF_ERROR(engine->AppendDigestParts(state.get(), &parts));
  const audit::Sha256Digest digest = parts.Digest();
  out->Raw(digest.data(), digest.size());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Numerics> MeasureNumerics(DeviceKind device) {
  if (device == DeviceKind::kCpu) return CpuNumerics();
  const ModelConfig config = SelfTestConfig();
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model,
                         Model::Create(config, SyntheticTensors(config, 1)));
  EngineOptions options;
  options.device = device;
  options.num_slots = 2;
  options.max_batch = 2;
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<DeviceEngine> engine,
                         DeviceEngine::Create(model, options));
  const std::vector<int32_t> vocab_ids = SelfTestTokens();
  ByteWriter whole;
  ByteWriter steps;
  absl::Status mate;
  std::thread beside([&] { mate = AddSession(engine.get(), vocab_ids, vocab_ids.size(), &whole); });
  const absl::Status status = AddSession(engine.get(), vocab_ids, 1, &steps);
  beside.join();
  LETHE_RETURN_IF_ERROR(status);
  LETHE_RETURN_IF_ERROR(mate);
  int capability = 0;
  LETHE_RETURN_IF_ERROR(engine->Run([&](Queue* queue) {
    capability = queue->compute_capability();
    return absl::OkStatus();
  }));
  ByteWriter out;
  out.Raw(NumericsId().data(), NumericsId().size());
  out.Raw(whole.bytes().data(), whole.bytes().size());
  out.Raw(steps.bytes().data(), steps.bytes().size());
  return Numerics{audit::Sha256Of(out.bytes()), absl::StrCat("cuda-", capability)};
}

}  // namespace lethe
