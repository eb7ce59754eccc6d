#include "server/model/memory_group.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "kernels/math/math.h"
#include "kernels/rms_norm/rms_norm.h"
#include "server/model/layer_state.h"

namespace lethe {
namespace {

CausalConvState EmptyTail(const CausalConvWeights& weights) {
  return CausalConvState(weights.num_channels(), weights.width());
}

// l2 of each row of `columns` elements, in place.
void L2NormalizeRows(int64_t columns, absl::Span<float> values) {
  const auto step = static_cast<size_t>(columns);
  for (size_t i = 0; i < values.size(); i += step) {
    const absl::Span<float> row = values.subspan(i, step);
    L2Normalize(row, row);
  }
}

// rows[i][j] += row[j].
void AddRow(absl::Span<const float> row, absl::Span<float> rows) {
  for (size_t i = 0; i < rows.size(); i += row.size()) {
    for (size_t j = 0; j < row.size(); ++j) rows[i + j] += row[j];
  }
}

// rows[i][j] *= row[j].
void ScaleColumns(absl::Span<const float> row, absl::Span<float> rows) {
  for (size_t i = 0; i < rows.size(); i += row.size()) {
    for (size_t j = 0; j < row.size(); ++j) rows[i + j] *= row[j];
  }
}

// out[i][c] = factor[i] * in[i][c]; rows of `columns` elements.
void ScaleRows(absl::Span<const float> factor, absl::Span<const float> in, int64_t columns,
               absl::Span<float> out) {
  const auto step = static_cast<size_t>(columns);
  for (size_t i = 0; i < factor.size(); ++i) {
    for (size_t c = 0; c < step; ++c) out[i * step + c] = factor[i] * in[i * step + c];
  }
}

void MultiplyInPlace(absl::Span<const float> factor, absl::Span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] *= factor[i];
}

}  // namespace

MemoryGroup::MemoryGroup(const GroupConfig& config, const GroupWeights& weights, float norm_eps,
                         std::unique_ptr<Memory> memory)
    : config_(&config),
      weights_(&weights),
      norm_eps_(norm_eps),
      tails_(EmptyTails()),
      memory_(std::move(memory)) {
  if (config.kind == MemoryKind::kSv) {
    sv_memory_ = dynamic_cast<svdd::SvMemory*>(memory_.get());
    key_trees_.resize(static_cast<size_t>(config.heads));
  }
}

absl::StatusOr<std::unique_ptr<MemoryGroup>> MemoryGroup::Create(const GroupConfig& config,
                                                                 const GroupWeights& weights,
                                                                 float norm_eps) {
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<Memory> memory, MakeMemory(config, weights));
  return std::unique_ptr<MemoryGroup>(
      new MemoryGroup(config, weights, norm_eps, std::move(memory)));
}

MemoryGroup::Tails MemoryGroup::EmptyTails() const {
  return {EmptyTail(weights_->conv_q), EmptyTail(weights_->conv_k), EmptyTail(weights_->conv_v)};
}

absl::StatusOr<MemoryGroup::Projections> MemoryGroup::Project(absl::Span<const float> h,
                                                              int64_t count, Reads reads,
                                                              Tails* tails,
                                                              Workspace* workspace) const {
  const auto project = [&](const PackedMatrix& matrix, const CausalConvWeights& conv, int buffer,
                           CausalConvState* tail) {
    const int64_t size = count * conv.num_channels();
    const absl::Span<float> raw = workspace->inner(buffer, size);
    const absl::Span<float> projected = workspace->inner(buffer + 3, size);
    Matmul(h, count, matrix, raw);
    CausalConv(conv, raw, tail, projected);
    return projected;
  };
  Projections p;
  if (reads == Reads::kWanted) p.q = project(weights_->wq, weights_->conv_q, 0, &tails->q);
  p.k = project(weights_->wk, weights_->conv_k, 1, &tails->k);
  p.v = project(weights_->wv, weights_->conv_v, 2, &tails->v);
  if (!AllFinite(p.q) || !AllFinite(p.k) || !AllFinite(p.v)) {
    return absl::InternalError("an activation of a memory layer is not finite");
  }
  return p;
}

MemoryInputs MemoryGroup::Prepare(absl::Span<const float> h, int64_t count, const Projections& p,
                                  Workspace* workspace) const {
  switch (config_->kind) {
    case MemoryKind::kPalimpsaD:
    case MemoryKind::kPalimpsaM:
      return PreparePalimpsa(h, count, p, workspace);
    case MemoryKind::kVla:
      return PrepareVla(count, p, workspace);
    case MemoryKind::kSv:
      L2NormalizeRows(config_->key_dim, p.q);
      L2NormalizeRows(config_->key_dim, p.k);
      break;
    case MemoryKind::kOvq:
    case MemoryKind::kWindow:
      break;
  }
  MemoryInputs inputs;
  inputs.q = p.q;
  inputs.k = p.k;
  inputs.v = p.v;
  return inputs;
}

void MemoryGroup::Finish(absl::Span<const float> h, int64_t count, const Projections& p,
                         absl::Span<float> out, Workspace* workspace) const {
  if (is_palimpsa()) FinishPalimpsa(h, count, p, out, workspace);
  const bool learned_gain = config_->kind == MemoryKind::kVla && !config_->read_norm_paper;
  if (learned_gain) ScaleColumns(weights_->read_gain, out);
}

absl::Status MemoryGroup::Apply(absl::Span<const float> h, int64_t count, const Projections& p,
                                absl::Span<float* const> stored, absl::Span<float> out,
                                Workspace* workspace) {
  const MemoryInputs inputs = Prepare(h, count, p, workspace);
  if (!stored.empty()) Store(inputs, stored);
  LETHE_RETURN_IF_ERROR(AsInternal(memory_->Step(inputs, count, out)));
  Finish(h, count, p, out, workspace);
  UpdateTrees();
  return absl::OkStatus();
}

MemoryInputs MemoryGroup::PreparePalimpsa(absl::Span<const float> h, int64_t count,
                                          const Projections& p, Workspace* workspace) const {
  const PalimpsaWeights& w = weights_->palimpsa;
  const bool is_d = config_->kind == MemoryKind::kPalimpsaD;
  const int64_t num_values = static_cast<int64_t>(p.v.size());
  Silu(p.q, p.q);
  Silu(p.k, p.k);
  Silu(p.v, p.v);  // x
  if (is_d) {
    L2NormalizeRows(config_->key_dim, p.q);
    L2NormalizeRows(config_->key_dim, p.k);
  }
  const absl::Span<float> step = workspace->inner(0, count * config_->heads);  // d
  Matmul(h, count, w.w_dt, step);
  AddRow(w.dt_bias, step);
  Softplus(step, step);
  const absl::Span<float> log_decay = workspace->inner(6, count * config_->heads);
  std::copy(step.begin(), step.end(), log_decay.begin());
  ScaleColumns(w.decay_rate, log_decay);
  absl::Span<float> gate = step;
  if (is_d) {
    gate = workspace->inner(1, count * config_->heads);
    Matmul(h, count, w.w_bs, gate);
    Sigmoid(gate, gate);
  }
  MemoryInputs inputs;
  if (config_->metaplasticity) {
    const absl::Span<float> low = workspace->inner(2, count * config_->rank);
    const absl::Span<float> precision = workspace->inner(7, num_values);
    Matmul(h, count, w.w_b1, low);
    Matmul(low, count, w.w_b2, precision);
    Sigmoid(precision, precision);
    // b = (gate * b_gain) * sigmoid; the gate itself is still needed for the write.
    const absl::Span<float> scale = workspace->inner(2, count * config_->heads);
    std::copy(gate.begin(), gate.end(), scale.begin());
    ScaleColumns(w.b_gain, scale);
    ScaleRows(scale, precision, config_->value_dim, precision);
    inputs.precision = precision;
  }
  const absl::Span<float> write = workspace->inner(2, num_values);  // v~
  ScaleRows(gate, p.v, config_->value_dim, write);
  inputs.q = p.q;
  inputs.k = p.k;
  inputs.v = write;
  inputs.log_decay = log_decay;
  return inputs;
}

// o + D x, then norm and gate in the order of the kind.
void MemoryGroup::FinishPalimpsa(absl::Span<const float> h, int64_t count, const Projections& p,
                                 absl::Span<float> out, Workspace* workspace) const {
  const PalimpsaWeights& w = weights_->palimpsa;
  const bool is_d = config_->kind == MemoryKind::kPalimpsaD;
  const auto value_dim = static_cast<size_t>(config_->value_dim);
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t head = i / value_dim % static_cast<size_t>(config_->heads);
    out[i] = std::fma(w.skip[head], p.v[i], out[i]);
  }
  const absl::Span<float> z = workspace->inner(0, static_cast<int64_t>(p.v.size()));
  Matmul(h, count, w.w_z, z);
  Silu(z, z);
  if (!is_d) MultiplyInPlace(z, out);
  RmsNorm(out, w.out_norm, norm_eps_, out);
  if (is_d) MultiplyInPlace(z, out);
}

MemoryInputs MemoryGroup::PrepareVla(int64_t count, const Projections& p,
                                     Workspace* workspace) const {
  MemoryInputs inputs;
  if (!config_->rls) {
    const absl::Span<float> u = workspace->inner(0, static_cast<int64_t>(p.k.size()));
    Matmul(p.k, count, weights_->w_u, u);
    L2NormalizeRows(config_->key_dim, u);
    const float root = std::sqrt(static_cast<float>(config_->key_dim));
    for (float& value : u) value /= root;
    inputs.write_direction = u;
  }
  EluPlusOne(p.q, p.q);
  EluPlusOne(p.k, p.k);
  inputs.q = p.q;
  inputs.k = p.k;
  inputs.v = p.v;
  return inputs;
}

bool MemoryGroup::is_palimpsa() const {
  return config_->kind == MemoryKind::kPalimpsaD || config_->kind == MemoryKind::kPalimpsaM;
}

MemoryGroup::Snapshot MemoryGroup::TakeSnapshot() const { return {tails_, memory_->Snapshot()}; }

absl::Status MemoryGroup::Restore(const Snapshot& snapshot) {
  LETHE_RETURN_IF_ERROR(memory_->Restore(*snapshot.memory));
  if (!FaultActive(Fault::kOldConvolutionTailKept)) tails_ = snapshot.tails;
  UpdateTrees();
  return absl::OkStatus();
}

std::unique_ptr<MemoryGroup> MemoryGroup::Clone() const {
  std::unique_ptr<MemoryGroup> clone(
      new MemoryGroup(*config_, *weights_, norm_eps_, memory_->Clone()));
  clone->tails_ = tails_;
  clone->key_trees_ = key_trees_;
  return clone;
}

absl::Status MemoryGroup::SkipSlots(int64_t count) {
  const auto heads = static_cast<size_t>(config_->heads);
  const std::vector<float> keys(heads * static_cast<size_t>(config_->key_dim));
  const std::vector<float> values(heads * static_cast<size_t>(config_->value_dim));
  const std::vector<float> gates(heads);
  std::vector<float> out(values.size());
  MemoryInputs inputs;
  inputs.q = keys;
  inputs.k = keys;
  inputs.v = values;
  if (is_palimpsa()) inputs.log_decay = gates;
  if (is_palimpsa() && config_->metaplasticity) inputs.precision = values;
  if (config_->kind == MemoryKind::kVla && !config_->rls) inputs.write_direction = keys;
  for (int64_t i = 0; i < count; ++i) {
    LETHE_RETURN_IF_ERROR(AsInternal(memory_->Step(inputs, 1, absl::MakeSpan(out))));
  }
  UpdateTrees();
  return absl::OkStatus();
}

}  // namespace lethe
