#include "server/model/reference.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_ref.h"
#include "kernels/palimpsa/palimpsa_ref.h"
#include "kernels/vla/vla_ref.h"
#include "memory/svdd/canonical.h"
#include "server/model/rows_ref.h"

namespace lethe {
namespace reference {
namespace {

// The tensors under one prefix.
class Weights {
 public:
  Weights(const TensorMap& tensors, std::string prefix)
      : tensors_(tensors), prefix_(std::move(prefix)) {}

  const Tensor& Get(const std::string& name) const { return tensors_.at(prefix_ + name); }
  double At(const std::string& name, size_t i) const {
    return static_cast<double>(Get(name).values[i]);
  }
  Weights Group(size_t g) const {
    return Weights(tensors_, absl::StrCat(prefix_, "groups.", g, "."));
  }

 private:
  const TensorMap& tensors_;
  std::string prefix_;
};

void AddSwiglu(const Weights& weights, const std::string& norm, double eps, Rows* x) {
  const Rows h = Normed(*x, weights.Get(norm), eps);
  Rows gate = Apply(weights.Get("w_gate.weight"), h);
  const Rows up = Apply(weights.Get("w_up.weight"), h);
  for (size_t t = 0; t < gate.size(); ++t) {
    for (size_t i = 0; i < gate[t].size(); ++i) gate[t][i] = Silu(gate[t][i]) * up[t][i];
  }
  Add(Apply(weights.Get("w_down.weight"), gate), x);
}

struct HeadShape {
  size_t heads = 0;
  size_t keys = 0;
  size_t values = 0;
};

// sum_i w_i v_i / sum w_i.
void WeightedMean(const Row& weights, const Rows& v, size_t first, size_t column, size_t values,
                  Row* out) {
  double total = 0.0;
  for (const double weight : weights) total += weight;
  for (size_t c = 0; c < values; ++c) {
    double sum = 0.0;
    for (size_t i = 0; i < weights.size(); ++i) sum += weights[i] * v[first + i][column + c];
    (*out)[column + c] = sum / total;
  }
}

Rows WindowAttention(const HeadShape& shape, size_t window, const std::vector<double>& slopes,
                     const Rows& q, const Rows& k, const Rows& v) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.keys));
  Rows out;
  for (size_t t = 0; t < q.size(); ++t) {
    Row row(shape.heads * shape.values, 0.0);
    const size_t first = t + 1 > window ? t + 1 - window : 0;
    for (size_t head = 0; head < shape.heads; ++head) {
      const size_t offset = head * shape.keys;
      Row logits;
      for (size_t i = first; i <= t; ++i) {
        logits.push_back(Dot(&q[t][offset], &k[i][offset], shape.keys) * scale -
                         slopes[head] * static_cast<double>(t - i));
      }
      const double largest = *std::max_element(logits.begin(), logits.end());
      for (double& logit : logits) logit = std::exp(logit - largest);
      WeightedMean(logits, v, first, head * shape.values, shape.values, &row);
    }
    out.push_back(std::move(row));
  }
  return out;
}

// q, k, v of a group after projection and convolution.
struct Projections {
  Rows q, k, v;
};

Row Part(const Row& row, size_t head, size_t size) {
  const auto first = row.begin() + static_cast<int64_t>(head * size);
  return Row(first, first + static_cast<int64_t>(size));
}

absl::Status SvHead(const GroupConfig& config, size_t head, double beta, const Projections& p,
                    Rows* out) {
  const auto keys = static_cast<size_t>(config.key_dim);
  const auto values = static_cast<size_t>(config.value_dim);
  const double scale = beta * std::sqrt(static_cast<double>(keys));
  LETHE_ASSIGN_OR_RETURN(const svdd::Params params, svdd::MakeParams(config.sigma, config.box_mass,
                                                                     config.ridge, config.key_dim));
  Row unit_keys;  // [t + 1][K]
  svdd::Solution gate;
  for (size_t t = 0; t < p.q.size(); ++t) {
    if (t % 64 == 0 && t > 0) {
      LETHE_ASSIGN_OR_RETURN(gate, svdd::SolveCanonical(params, unit_keys));
    }
    Row q = Part(p.q[t], head, keys);
    Row k = Part(p.k[t], head, keys);
    L2(q.data(), keys);
    L2(k.data(), keys);
    unit_keys.insert(unit_keys.end(), k.begin(), k.end());
    Row weights;
    double largest = 0.0;
    for (size_t i = 0; i <= t; ++i) {
      weights.push_back(scale * Dot(q.data(), &unit_keys[i * keys], keys));
      largest = i == 0 ? weights[0] : std::max(largest, weights[i]);
    }
    for (size_t i = 0; i <= t; ++i) {
      const double a = i < t - t % 64 ? gate.a[i] : 1.0;
      weights[i] = a * std::exp(weights[i] - largest);
    }
    WeightedMean(weights, p.v, 0, head * values, values, &(*out)[t]);
  }
  return absl::OkStatus();
}

void OvqHead(const GroupConfig& config, size_t head, double beta, const Projections& p, Rows* out) {
  const auto keys = static_cast<size_t>(config.key_dim);
  const auto values = static_cast<size_t>(config.value_dim);
  OvqRef memory({config.key_dim, config.value_dim, config.slots}, beta);
  for (size_t t = 0; t < p.q.size(); ++t) {
    const Row read =
        memory.Step(Part(p.q[t], head, keys), Part(p.k[t], head, keys), Part(p.v[t], head, values));
    std::copy(read.begin(), read.end(), (*out)[t].begin() + static_cast<int64_t>(head * values));
    if ((t + 1) % 64 == 0) memory.Merge(memory.ChooseAssignment());
  }
}

void VlaHead(const GroupConfig& config, const Weights& weights, size_t head, const Rows& u,
             const Projections& p, Rows* out) {
  const auto keys = static_cast<size_t>(config.key_dim);
  const auto values = static_cast<size_t>(config.value_dim);
  VlaOptions options;
  options.key_dim = config.key_dim;
  options.value_dim = config.value_dim;
  options.variant = config.rls ? VlaVariant::kRls : VlaVariant::kVla;
  options.nudge = config.nudge;
  options.lambda0 = config.lambda0;
  options.read_norm = config.read_norm_paper ? VlaReadNorm::kPaper : VlaReadNorm::kRms;
  VlaRef memory(options);
  const auto elu_plus_one = [](Row x) {
    for (double& value : x) value = value > 0.0 ? value + 1.0 : std::exp(value);
    return x;
  };
  for (size_t t = 0; t < p.q.size(); ++t) {
    Row direction;
    if (!config.rls) {
      direction = Part(u[t], head, keys);
      L2(direction.data(), keys);
      for (double& value : direction) value /= std::sqrt(static_cast<double>(keys));
    }
    memory.Step(elu_plus_one(Part(p.q[t], head, keys)), elu_plus_one(Part(p.k[t], head, keys)),
                Part(p.v[t], head, values), direction);
    for (size_t c = 0; c < values; ++c) {
      const double gain = config.read_norm_paper ? 1.0 : weights.At("read_gain", c);
      (*out)[t][head * values + c] = memory.read()[c] * gain;
    }
  }
}

// What PalimpsaRefRecurrent takes for one head, from the token-wise gates.
PalimpsaRefInputs PalimpsaInputsOf(const GroupConfig& config, const Weights& weights, size_t head,
                                   const Rows& h, const Projections& p) {
  const auto keys = static_cast<size_t>(config.key_dim);
  const auto values = static_cast<size_t>(config.value_dim);
  const bool is_d = config.kind == MemoryKind::kPalimpsaD;
  PalimpsaRefInputs inputs;
  for (size_t t = 0; t < h.size(); ++t) {
    Row q = Part(p.q[t], head, keys);
    Row k = Part(p.k[t], head, keys);
    for (double& value : q) value = Silu(value);
    for (double& value : k) value = Silu(value);
    if (is_d) L2(q.data(), keys);
    if (is_d) L2(k.data(), keys);
    inputs.q.insert(inputs.q.end(), q.begin(), q.end());
    inputs.k.insert(inputs.k.end(), k.begin(), k.end());
    const double d =
        Softplus(Apply(weights.Get("w_dt.weight"), h[t])[head] + weights.At("dt_bias", head));
    inputs.log_decay.push_back(-std::exp(weights.At("A_log", head)) * d);
    const double gate = is_d ? Sigmoid(Apply(weights.Get("w_bs.weight"), h[t])[head]) : d;
    const Row strength = Apply(weights.Get("w_b2.weight"), Apply(weights.Get("w_b1.weight"), h[t]));
    for (size_t c = 0; c < values; ++c) {
      inputs.value.push_back(gate * Silu(p.v[t][head * values + c]));
      const double b =
          gate * Sigmoid(strength[head * values + c]) * Softplus(weights.At("b_scale", head));
      inputs.precision.push_back(config.metaplasticity ? b : 0.0);
    }
  }
  return inputs;
}

// The read with its skip, before norm and gate.
void PalimpsaHead(const GroupConfig& config, const Weights& weights, size_t head, const Rows& h,
                  const Projections& p, Rows* out) {
  const auto values = static_cast<size_t>(config.value_dim);
  const bool is_d = config.kind == MemoryKind::kPalimpsaD;
  PalimpsaRefOptions options;
  options.shape = {1, config.key_dim, config.value_dim};
  options.read_scale = is_d ? 1.0 / std::sqrt(static_cast<double>(config.key_dim)) : 1.0;
  const PalimpsaRefResult result = PalimpsaRefRecurrent(
      options, PalimpsaInputsOf(config, weights, head, h, p), static_cast<int64_t>(h.size()));
  for (size_t t = 0; t < h.size(); ++t) {
    for (size_t c = 0; c < values; ++c) {
      (*out)[t][head * values + c] =
          result.out[t * values + c] + weights.At("D", head) * Silu(p.v[t][head * values + c]);
    }
  }
}

// out_norm's length says whether it spans a head or the group.
void NormAndGate(bool gate_first, const Weights& weights, double eps, const Rows& h, Rows* out) {
  for (size_t t = 0; t < h.size(); ++t) {
    Row& o = (*out)[t];
    const Row z = Apply(weights.Get("w_z.weight"), h[t]);
    for (size_t c = 0; gate_first && c < o.size(); ++c) o[c] *= Silu(z[c]);
    RmsNorm(weights.Get("out_norm.weight"), eps, &o);
    for (size_t c = 0; !gate_first && c < o.size(); ++c) o[c] *= Silu(z[c]);
  }
}

absl::StatusOr<Rows> Group(const GroupConfig& config, const Weights& weights, int64_t conv_width,
                           double eps, const Rows& h) {
  LETHE_CHECK(weights.Get("conv_q.weight").shape[1] == conv_width);
  const auto conv = [&](const char* project, const std::string& name) {
    const Tensor* bias =
        config.kind == MemoryKind::kPalimpsaM ? &weights.Get(name + ".bias") : nullptr;
    return Conv(weights.Get(name + ".weight"), bias, Apply(weights.Get(project), h));
  };
  const Projections p = {conv("wq.weight", "conv_q"), conv("wk.weight", "conv_k"),
                         conv("wv.weight", "conv_v")};
  const auto heads = static_cast<size_t>(config.heads);
  Rows out(h.size(), Row(heads * static_cast<size_t>(config.value_dim), 0.0));
  if (config.kind == MemoryKind::kWindow) {
    const HeadShape shape = {heads, static_cast<size_t>(config.key_dim),
                             static_cast<size_t>(config.value_dim)};
    return WindowAttention(shape, static_cast<size_t>(config.window), config.alibi_slopes, p.q, p.k,
                           p.v);
  }
  Rows u;
  if (config.kind == MemoryKind::kVla && !config.rls) u = Apply(weights.Get("w_u.weight"), p.k);
  for (size_t head = 0; head < heads; ++head) {
    if (config.kind == MemoryKind::kSv) {
      LETHE_RETURN_IF_ERROR(SvHead(config, head, weights.At("beta", head), p, &out));
    } else if (config.kind == MemoryKind::kOvq) {
      OvqHead(config, head, weights.At("beta", head), p, &out);
    } else if (config.kind == MemoryKind::kVla) {
      VlaHead(config, weights, head, u, p, &out);
    } else {
      PalimpsaHead(config, weights, head, h, p, &out);
    }
  }
  const bool is_m = config.kind == MemoryKind::kPalimpsaM;
  if (is_m || config.kind == MemoryKind::kPalimpsaD) NormAndGate(is_m, weights, eps, h, &out);
  return out;
}

absl::Status MemoryLayer(const MemoryLayerConfig& config, const Weights& weights, double eps,
                         Rows* x) {
  const Rows h = Normed(*x, weights.Get("norm.weight"), eps);
  Rows all(h.size());
  for (size_t g = 0; g < config.groups.size(); ++g) {
    LETHE_ASSIGN_OR_RETURN(const Rows out,
                           Group(config.groups[g], weights.Group(g), config.conv_width, eps, h));
    for (size_t t = 0; t < h.size(); ++t) all[t].insert(all[t].end(), out[t].begin(), out[t].end());
  }
  Add(Apply(weights.Get("wo.weight"), all), x);
  return absl::OkStatus();
}

void LocalLayer(const LocalLayerConfig& config, const Weights& weights, double eps, Rows* x) {
  const Rows h =
      Conv(weights.Get("conv.weight"), nullptr, Normed(*x, weights.Get("norm1.weight"), eps));
  const HeadShape shape = {static_cast<size_t>(config.heads), static_cast<size_t>(config.head_dim),
                           static_cast<size_t>(config.head_dim)};
  const Rows o =
      WindowAttention(shape, static_cast<size_t>(config.window), config.alibi_slopes,
                      Apply(weights.Get("wq.weight"), h), Apply(weights.Get("wk.weight"), h),
                      Apply(weights.Get("wv.weight"), h));
  Add(Apply(weights.Get("wo.weight"), o), x);
  AddSwiglu(weights, "norm2.weight", eps, x);
}

}  // namespace
}  // namespace reference

absl::StatusOr<ReferenceOutput> ReferenceForward(const ModelConfig& config,
                                                 const TensorMap& tensors,
                                                 absl::Span<const int32_t> vocab_ids) {
  LETHE_CHECK(!vocab_ids.empty());
  const reference::Weights top(tensors, "");
  const auto width = static_cast<size_t>(config.width);
  reference::Rows x;
  for (const int32_t vocab_id : vocab_ids) {
    reference::Row row(width);
    for (size_t i = 0; i < width; ++i) {
      row[i] = top.At("embed.weight", static_cast<size_t>(vocab_id) * width + i);
    }
    x.push_back(std::move(row));
  }
  ReferenceOutput output;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const reference::Weights weights(tensors, absl::StrCat("layers.", i, "."));
    if (const auto* local = std::get_if<LocalLayerConfig>(&config.layers[i])) {
      reference::LocalLayer(*local, weights, config.norm_eps, &x);
    } else if (const auto* memory = std::get_if<MemoryLayerConfig>(&config.layers[i])) {
      LETHE_RETURN_IF_ERROR(reference::MemoryLayer(*memory, weights, config.norm_eps, &x));
    } else {
      reference::AddSwiglu(weights, "norm.weight", config.norm_eps, &x);
    }
    output.layer_outputs.push_back(x.back());
  }
  output.logits =
      reference::Apply(top.Get("lm_head.weight"),
                       reference::Normed(x, top.Get("final_norm.weight"), config.norm_eps));
  return output;
}

}  // namespace lethe
