// The palimpsa groups of a memory layer on a device.
#include <cmath>

#include "kernels/base/status_macros.h"
#include "kernels/palimpsa/palimpsa_batch.h"
#include "kernels/rms_norm/residual_norm.h"
#include "server/device/device_group.h"

namespace lethe {
namespace {

using elementwise::Map;
using elementwise::Matrix;

class PalimpsaGroup final : public DeviceGroup {
 public:
  explicit PalimpsaGroup(const GroupSetup& setup)
      : weights_(&setup.weights->palimpsa),
        is_d_(setup.config->kind == MemoryKind::kPalimpsaD),
        shape_{setup.config->heads, setup.config->key_dim, setup.config->value_dim},
        num_values_(setup.columns.num_values),
        norm_eps_(setup.layer->norm_eps) {
    const GroupColumns& columns = setup.columns;
    const auto split = [&](int64_t begin, int64_t num_columns) {
      return AddSplit(setup, begin, num_columns, Map::kSilu, setup.conv_parts);
    };
    q_ = split(columns.q_begin, columns.num_keys);
    k_ = split(columns.k_begin, columns.num_keys);
    x_ = split(columns.v_begin, num_values_);
    if (is_d_) {
      for (float* keys : {q_, k_}) {
        setup.norm_parts->push_back({keys, columns.num_keys, shape_.key_dim});
      }
    }
    SplitGates(setup);
    write_ = setup.layer->plan->Rows(num_values_);
    if (setup.config->metaplasticity) precision_ = setup.layer->plan->Rows(num_values_);
    out_ = AddJoin(setup, is_d_ ? z_ : nullptr, nullptr);
    m_ = setup.layer->arrays->Floats((*setup.parts)[0]);
    i_bar_ = setup.layer->arrays->Floats((*setup.parts)[1]);
  }

  absl::Status Forward(const ForwardBatch& batch) const override {
    const int64_t rows = batch.sequences.num_tokens;
    const Matrix values = {rows, num_values_};
    if (precision_ != nullptr) {
      LETHE_RETURN_IF_ERROR(
          MatmulBatch(batch.queue, low_, rows, weights_->w_b2, kActivationTerms, precision_));
      LETHE_RETURN_IF_ERROR(elementwise::ScaleHeads(batch.queue, gate_, weights_->b_gain.data(),
                                                    Map::kSigmoid, precision_, values,
                                                    shape_.num_heads, precision_));
    }
    LETHE_RETURN_IF_ERROR(elementwise::ScaleHeads(batch.queue, gate_, nullptr, Map::kNone, x_,
                                                  values, shape_.num_heads, write_));
    LETHE_RETURN_IF_ERROR(Fold(batch));
    return Finish(batch.queue, values);
  }

 private:
  // Of w_gates' rows: log_decay, the write's gate, the low rank of the precision, z.
  void SplitGates(const GroupSetup& setup) {
    const auto split = [&](int64_t begin, int64_t num_columns, Map map) {
      return AddSplit(setup, begin, num_columns, map, setup.gate_parts);
    };
    const int64_t heads = shape_.num_heads;
    log_decay_ = split(setup.gates.dt, heads, Map::kSoftplus);
    setup.gate_parts->back().add = weights_->dt_bias.data();
    setup.gate_parts->back().scale = weights_->decay_rate.data();
    if (is_d_) {
      gate_ = split(setup.gates.bs, heads, Map::kSigmoid);
    } else {
      gate_ = split(setup.gates.dt, heads, Map::kSoftplus);
      setup.gate_parts->back().add = weights_->dt_bias.data();
    }
    if (setup.config->metaplasticity) {
      low_ = split(setup.gates.b1, setup.config->rank, Map::kNone);
    }
    z_ = split(setup.gates.z, num_values_, Map::kSilu);
  }

  absl::Status Fold(const ForwardBatch& batch) const {
    PalimpsaBatch call;
    call.q = q_;
    call.k = k_;
    call.value = write_;
    call.log_decay = log_decay_;
    call.precision = precision_;
    call.offsets = batch.offsets;
    call.slots = batch.sequences.slots;
    call.num_sequences = batch.sequences.num_sequences;
    call.num_tokens = batch.sequences.num_tokens;
    call.max_length = batch.sequences.longest;
    call.m = m_;
    call.i_bar = i_bar_;
    call.out = out_;
    const float scale = is_d_ ? 1.0f / std::sqrt(static_cast<float>(shape_.key_dim)) : 1.0f;
    return PalimpsaFold(batch.queue, shape_, call, scale);
  }

  // o + D x, then norm and gate in the order of the kind; of palimpsa_d the gate is the join's.
  absl::Status Finish(Queue* queue, const Matrix& values) const {
    SkipShape shape;
    shape.num_rows = values.num_rows;
    shape.num_heads = shape_.num_heads;
    shape.head_columns = shape_.value_dim;
    shape.num_channels = static_cast<int64_t>(weights_->out_norm.size());
    return SkipNormBatch(queue, shape, weights_->skip.data(), x_, is_d_ ? nullptr : z_,
                         weights_->out_norm.data(), norm_eps_, out_);
  }

  const DevicePalimpsaWeights* weights_;
  bool is_d_;
  PalimpsaShape shape_;
  int64_t num_values_;
  float norm_eps_;
  float* q_;
  float* k_;
  float* x_;
  float* log_decay_ = nullptr;
  float* gate_ = nullptr;
  float* low_ = nullptr;
  float* z_ = nullptr;
  float* write_;
  float* precision_ = nullptr;
  float* out_;
  float* m_;
  float* i_bar_;
};

}  // namespace

std::unique_ptr<DeviceGroup> MakePalimpsaGroup(const GroupSetup& setup) {
  return std::make_unique<PalimpsaGroup>(setup);
}

}  // namespace lethe
