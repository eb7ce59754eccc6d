#include "server/model/numerics_id.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/base/byte_io.h"
#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/math/math.h"
#include "kernels/sampling/philox.h"
#include "kernels/sampling/sampling.h"
#include "memory/svdd/incremental.h"
#include "server/model/bank_edit.h"
#include "server/model/config.h"
#include "server/model/model.h"
#include "server/model/model_state.h"
#include "server/model/synthetic_model.h"
#include "server/model/workspace.h"

namespace lethe {
namespace {

// Every layer type, every memory kind and every option of theirs that changes arithmetic.
constexpr char kSelfTestConfig[] = R"({
  "format": "lethe-model/1", "name": "self-test", "tokenizer": "bytes", "vocab_size": 40,
  "end_of_text": -1, "width": 24, "max_tokens": 4096, "norm_eps": 1e-6,
  "layers": [
    {"type": "local", "heads": 2, "head_dim": 8, "window": 9, "conv_width": 3, "mlp_width": 32,
     "alibi_slopes": [0.05, 0.25]},
    {"type": "memory", "conv_width": 4, "groups": [
      {"kind": "sv", "heads": 2, "key_dim": 16, "value_dim": 8, "sigma": 1.0, "box_mass": 30.5,
       "ridge": 0.00048828125},
      {"kind": "palimpsa_d", "heads": 2, "key_dim": 8, "value_dim": 8, "rank": 3},
      {"kind": "palimpsa_m", "heads": 1, "key_dim": 8, "value_dim": 8, "rank": 3,
       "metaplasticity": true},
      {"kind": "palimpsa_m", "heads": 1, "key_dim": 8, "value_dim": 8, "rank": 3,
       "metaplasticity": false},
      {"kind": "palimpsa_m", "heads": 2, "key_dim": 8, "value_dim": 8, "rank": 3,
       "metaplasticity": true, "out_norm": "group"},
      {"kind": "vla", "heads": 1, "key_dim": 8, "value_dim": 8, "variant": "vla", "nudge": true,
       "lambda0": 0.1, "read_norm": "rms"},
      {"kind": "vla", "heads": 1, "key_dim": 8, "value_dim": 8, "variant": "rls", "nudge": false,
       "lambda0": 0.1, "read_norm": "paper"},
      {"kind": "palimpsa_d", "heads": 1, "key_dim": 72, "value_dim": 72, "rank": 3},
      {"kind": "vla", "heads": 1, "key_dim": 72, "value_dim": 72, "variant": "vla", "nudge": true,
       "lambda0": 0.1, "read_norm": "rms"},
      {"kind": "ovq", "heads": 1, "key_dim": 64, "value_dim": 64, "slots": 40},
      {"kind": "ovq", "heads": 1, "key_dim": 8, "value_dim": 8, "slots": 12},
      {"kind": "window", "heads": 1, "key_dim": 8, "value_dim": 16, "window": 17,
       "alibi_slopes": [0.1]}]},
    {"type": "mlp", "mlp_width": 32}]})";

constexpr int kSelfTestTokens = 200;

void AddFunctions(ByteWriter* out) {
  std::vector<float> x;
  for (int i = -400; i <= 400; ++i) x.push_back(static_cast<float>(i) * 0.2371f);
  std::vector<float> y(x.size());
  const auto add = [&](void (*function)(absl::Span<const float>, absl::Span<float>)) {
    function(x, absl::MakeSpan(y));
    out->Array(absl::MakeConstSpan(y));
  };
  for (void (*function)(absl::Span<const float>, absl::Span<float>) :
       {static_cast<void (*)(absl::Span<const float>, absl::Span<float>)>(&Exp), &Sigmoid, &Silu,
        &Softplus, &Elu, &EluPlusOne, &L2Normalize}) {
    add(function);
  }
  for (const float value : x) {
    const double wide = static_cast<double>(value) * 1.7;
    out->F64(Exp(wide));
    out->F32(Log(value * value + 0.01f));
    out->F64(Log(wide * wide + 0.01));
  }
  out->F32(Dot(x, y));
}

void AddSampler(absl::Span<const float> logits, ByteWriter* out) {
  const std::vector<int64_t> counts(logits.size(), 1);
  SamplingParameters parameters;
  parameters.temperature = 0.9;
  parameters.top_p = 0.95;
  parameters.min_p = 0.01;
  parameters.repetition_penalty = 1.1;
  for (int64_t rank = 0; rank < 32; ++rank) {
    parameters.seed = 7u + static_cast<uint64_t>(rank);
    const absl::StatusOr<SampledToken> token = Sample(logits, counts, parameters, rank);
    LETHE_CHECK(token.ok());
    out->I64(token->vocab_id);
    out->F64(token->logprob);
    out->F64(Uniform53(parameters.seed, static_cast<uint64_t>(rank)));
  }
}

// The state after a Forget of one token by replay: other code than a step's.
void AddEdit(const CpuModelState& state, const ModelSnapshot& start, std::vector<int32_t> history,
             ByteWriter* out) {
  const std::vector<int64_t> removed = {30};
  history.erase(history.begin() + removed[0]);
  const auto last = static_cast<int64_t>(history.size()) - 1;
  const BankEditPlan plan = PlanBankEdit(state, removed, start.num_tokens());
  BankEdit edit(state, plan, removed, history);
  LETHE_CHECK(edit.Refresh({}).ok() && edit.Restore(start).ok());
  while (edit.rank() < last) {
    LETHE_CHECK(edit.Replay(std::min(edit.rank() + kBlockTokens, last)).ok());
  }
  const absl::StatusOr<std::unique_ptr<ModelState>> edited = edit.Finish({});
  LETHE_CHECK(edited.ok());
  std::vector<float> logits(static_cast<size_t>(state.model().config().vocab_size));
  LETHE_CHECK((*edited)->Logits(absl::MakeSpan(logits)).ok());
  audit::StateParts parts;
  (*edited)->AppendDigestParts(&parts);
  const audit::Sha256Digest digest = parts.Digest();
  out->Raw(digest.data(), digest.size());
  out->Array(absl::MakeConstSpan(logits));
}

// Keys in f64, as vector sessions hold them: no model has any.
void AddVectors(ByteWriter* out) {
  constexpr int64_t kKeyDim = 5;
  constexpr int kNumKeys = 90;
  const absl::StatusOr<svdd::Params> params = svdd::MakeParams(1.3, 20.5, 0x1.0p-11, kKeyDim);
  LETHE_CHECK(params.ok());
  svdd::IncrementalSolver solver(*params);
  std::vector<double> key(kKeyDim);
  for (int i = 0; i < kNumKeys; ++i) {
    for (int c = 0; c < kKeyDim; ++c) {
      key[static_cast<size_t>(c)] = static_cast<double>((i * i + 7 * c * i) % 101) / 61.0;
    }
    LETHE_CHECK(solver.Add(key).ok());
  }
  LETHE_CHECK(solver.RemoveSeveral({3, 40, 41}).ok());
  out->F64(solver.solution().rho);
  for (const double a : solver.solution().a) out->F64(a);
}

audit::Sha256Digest ComputeNumericsId() {
  const ModelConfig config = SelfTestConfig();
  const auto model = Model::Create(config, SyntheticTensors(config, 1));
  LETHE_CHECK(model.ok());
  auto state = CpuModelState::Create(*model, {});
  LETHE_CHECK(state.ok());
  const std::vector<int32_t> vocab_ids = SelfTestTokens();
  const std::shared_ptr<const ModelSnapshot> start = (*state)->Snapshot();
  std::vector<float> logits(vocab_ids.size() * 40);
  LETHE_CHECK((*state)->EvaluateWithLogits(vocab_ids, absl::MakeSpan(logits)).ok());
  audit::StateParts parts;
  (*state)->AppendDigestParts(&parts);
  ByteWriter out;
  AddFunctions(&out);
  out.Array(absl::MakeConstSpan(logits));
  AddSampler(absl::MakeConstSpan(logits).last(40), &out);
  const audit::Sha256Digest state_digest = parts.Digest();
  out.Raw(state_digest.data(), state_digest.size());
  AddEdit(**state, *start, vocab_ids, &out);
  AddVectors(&out);
  return audit::Sha256Of(out.bytes());
}

}  // namespace

ModelConfig SelfTestConfig() {
  absl::StatusOr<ModelConfig> config = ParseModelConfig(kSelfTestConfig);
  LETHE_CHECK(config.ok());
  return *std::move(config);
}

std::vector<int32_t> SelfTestTokens() {
  std::vector<int32_t> vocab_ids;
  vocab_ids.reserve(kSelfTestTokens);
  for (int i = 0; i < kSelfTestTokens; ++i) vocab_ids.push_back((i * i + i / 7) % 40);
  return vocab_ids;
}

const audit::Sha256Digest& NumericsId() {
  if (FaultActive(Fault::kConstantChanged)) {
    static const audit::Sha256Digest changed = ComputeNumericsId();
    return changed;
  }
  static const audit::Sha256Digest id = ComputeNumericsId();
  return id;
}

}  // namespace lethe
