#include "server/device/device_weights.h"

#include <cmath>
#include <initializer_list>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/matmul/unpack.h"
#include "server/device/slot_layout.h"

namespace lethe {
namespace {

// Puts weights on the device and counts their bytes.
class Uploader {
 public:
  Uploader(Queue* queue, size_t* bytes) : queue_(queue), bytes_(bytes) {}

  absl::Status Put(absl::Span<const float> values, DeviceArray<float>* to) const {
    LETHE_ASSIGN_OR_RETURN(*to, DeviceArray<float>::From(queue_, values));
    *bytes_ += values.size() * sizeof(float);
    return absl::OkStatus();
  }
  absl::Status Put(const std::vector<const PackedMatrix*>& stacked, DeviceMatrix* to) const {
    if (stacked.empty()) return absl::OkStatus();
    std::vector<float> rows;
    int64_t num_outputs = 0;
    for (const PackedMatrix* matrix : stacked) {
      const std::vector<float> w = Unpack(*matrix);
      rows.insert(rows.end(), w.begin(), w.end());
      num_outputs += matrix->num_outputs();
    }
    LETHE_ASSIGN_OR_RETURN(
        *to, DeviceMatrix::Create(queue_, rows, num_outputs, stacked.front()->num_inputs()));
    *bytes_ += to->size_bytes();
    return absl::OkStatus();
  }
  absl::Status Put(const std::vector<const CausalConvWeights*>& stacked, DeviceConv* to) const {
    std::vector<float> taps;
    std::vector<float> bias;
    bool has_bias = false;
    to->width = stacked.front()->width();
    for (int64_t j = 0; j < to->width; ++j) {
      for (const CausalConvWeights* conv : stacked) {
        taps.insert(taps.end(), conv->tap(j), conv->tap(j) + conv->num_channels());
      }
    }
    for (const CausalConvWeights* conv : stacked) {
      to->num_channels += conv->num_channels();
      has_bias = has_bias || conv->has_bias();
      bias.insert(bias.end(), conv->bias().begin(), conv->bias().end());
      bias.resize(static_cast<size_t>(to->num_channels));
    }
    LETHE_RETURN_IF_ERROR(Put(taps, &to->taps));
    return has_bias ? Put(bias, &to->bias) : absl::OkStatus();
  }

 private:
  Queue* queue_;
  size_t* bytes_;
};

absl::Status PutMlp(const Uploader& uploader, const MlpWeights& from, DeviceMlpWeights* to) {
  LETHE_RETURN_IF_ERROR(uploader.Put(from.norm, &to->norm));
  LETHE_RETURN_IF_ERROR(uploader.Put({&from.w_gate, &from.w_up}, &to->w_gate_up));
  return uploader.Put({&from.w_down}, &to->w_down);
}

absl::Status PutLocal(const Uploader& uploader, const LocalWeights& from, DeviceLocalWeights* to) {
  LETHE_RETURN_IF_ERROR(uploader.Put(from.norm1, &to->norm1));
  LETHE_RETURN_IF_ERROR(uploader.Put({&from.conv}, &to->conv));
  LETHE_RETURN_IF_ERROR(uploader.Put({&from.wq, &from.wk, &from.wv}, &to->w_qkv));
  LETHE_RETURN_IF_ERROR(uploader.Put({&from.wo}, &to->wo));
  LETHE_RETURN_IF_ERROR(uploader.Put(from.alibi_slopes, &to->alibi_slopes));
  return PutMlp(uploader, from.mlp, &to->mlp);
}

absl::Status PutGroup(const Uploader& uploader, const GroupConfig& config, const GroupWeights& from,
                      DeviceGroupWeights* to) {
  std::vector<float> scales;
  for (const float beta : from.beta) {
    scales.push_back(beta * std::sqrt(static_cast<float>(config.key_dim)));
  }
  LETHE_RETURN_IF_ERROR(uploader.Put(scales, &to->logit_scales));
  LETHE_RETURN_IF_ERROR(uploader.Put(from.read_gain, &to->read_gain));
  LETHE_RETURN_IF_ERROR(uploader.Put(from.alibi_slopes, &to->alibi_slopes));
  if (config.kind == MemoryKind::kVla && !config.rls) {
    LETHE_RETURN_IF_ERROR(uploader.Put({&from.w_u}, &to->w_u));
  }
  if (!IsPalimpsa(config)) return absl::OkStatus();
  const PalimpsaWeights& palimpsa = from.palimpsa;
  if (config.metaplasticity) {
    LETHE_RETURN_IF_ERROR(uploader.Put({&palimpsa.w_b2}, &to->palimpsa.w_b2));
  }
  LETHE_RETURN_IF_ERROR(uploader.Put(palimpsa.dt_bias, &to->palimpsa.dt_bias));
  LETHE_RETURN_IF_ERROR(uploader.Put(palimpsa.decay_rate, &to->palimpsa.decay_rate));
  LETHE_RETURN_IF_ERROR(uploader.Put(palimpsa.b_gain, &to->palimpsa.b_gain));
  LETHE_RETURN_IF_ERROR(uploader.Put(palimpsa.skip, &to->palimpsa.skip));
  return uploader.Put(palimpsa.out_norm, &to->palimpsa.out_norm);
}

// A palimpsa group's matrices join the stacked ones.
GateColumns StackGates(const GroupConfig& config, const PalimpsaWeights& weights,
                       std::vector<const PackedMatrix*>* stacked) {
  int64_t end = 0;
  for (const PackedMatrix* matrix : *stacked) end += matrix->num_outputs();
  const auto stack = [&](const PackedMatrix& matrix) {
    stacked->push_back(&matrix);
    const int64_t begin = end;
    end += matrix.num_outputs();
    return begin;
  };
  GateColumns columns;
  columns.z = stack(weights.w_z);
  columns.dt = stack(weights.w_dt);
  if (config.kind == MemoryKind::kPalimpsaD) columns.bs = stack(weights.w_bs);
  if (config.metaplasticity) columns.b1 = stack(weights.w_b1);
  return columns;
}

absl::Status PutMemory(const Uploader& uploader, const MemoryLayerConfig& config,
                       const MemoryWeights& from, DeviceMemoryWeights* to) {
  std::vector<const PackedMatrix*> qkv;
  std::vector<const PackedMatrix*> gates;
  std::vector<const CausalConvWeights*> convs;
  for (size_t g = 0; g < config.groups.size(); ++g) {
    const GroupWeights& group = from.groups[g];
    for (const PackedMatrix* matrix : {&group.wq, &group.wk, &group.wv}) qkv.push_back(matrix);
    for (const CausalConvWeights* conv : {&group.conv_q, &group.conv_k, &group.conv_v}) {
      convs.push_back(conv);
    }
    to->gate_columns.push_back(IsPalimpsa(config.groups[g])
                                   ? StackGates(config.groups[g], group.palimpsa, &gates)
                                   : GateColumns());
    to->groups.emplace_back();
    LETHE_RETURN_IF_ERROR(PutGroup(uploader, config.groups[g], group, &to->groups.back()));
  }
  LETHE_RETURN_IF_ERROR(uploader.Put(from.norm, &to->norm));
  LETHE_RETURN_IF_ERROR(uploader.Put(qkv, &to->w_qkv));
  LETHE_RETURN_IF_ERROR(uploader.Put(convs, &to->conv));
  LETHE_RETURN_IF_ERROR(uploader.Put(gates, &to->w_gates));
  return uploader.Put({&from.wo}, &to->wo);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceLayerWeights>> MakeDeviceLayer(Queue* queue,
                                                                    const LayerConfig& config,
                                                                    const LayerWeights& weights,
                                                                    size_t* bytes) {
  const Uploader uploader(queue, bytes);
  auto layer = std::make_unique<DeviceLayerWeights>();
  if (const auto* memory = std::get_if<MemoryLayerConfig>(&config)) {
    auto& to = layer->layer.emplace<DeviceMemoryWeights>();
    LETHE_RETURN_IF_ERROR(
        PutMemory(uploader, *memory, std::get<MemoryWeights>(weights.layer), &to));
  } else if (const auto* local = std::get_if<LocalWeights>(&weights.layer)) {
    LETHE_RETURN_IF_ERROR(PutLocal(uploader, *local, &layer->layer.emplace<DeviceLocalWeights>()));
  } else {
    LETHE_RETURN_IF_ERROR(PutMlp(uploader, std::get<MlpWeights>(weights.layer),
                                 &layer->layer.emplace<DeviceMlpWeights>()));
  }
  return layer;
}

absl::StatusOr<std::unique_ptr<DeviceHeadWeights>> MakeDeviceHead(Queue* queue,
                                                                  const HeadWeights& weights,
                                                                  size_t* bytes) {
  const Uploader uploader(queue, bytes);
  auto head = std::make_unique<DeviceHeadWeights>();
  LETHE_RETURN_IF_ERROR(uploader.Put(weights.embed, &head->embed));
  LETHE_RETURN_IF_ERROR(uploader.Put(weights.final_norm, &head->final_norm));
  LETHE_RETURN_IF_ERROR(uploader.Put({&weights.lm_head}, &head->lm_head));
  return head;
}

}  // namespace lethe
