#include "server/device/device_group.h"

#include <cmath>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_batch.h"
#include "kernels/sv_read/sv_read_batch.h"
#include "kernels/vla/vla_fold.h"
#include "kernels/window_attention/window_attention_batch.h"

namespace lethe {
namespace {

using elementwise::Map;

class VlaGroup final : public DeviceGroup {
 public:
  explicit VlaGroup(const GroupSetup& setup)
      : options_(VlaOptionsOf(*setup.config)), w_u_(&setup.weights->w_u) {
    const GroupColumns& columns = setup.columns;
    const auto split = [&](int64_t begin, int64_t num_columns, Map map) {
      return AddSplit(setup, begin, num_columns, map, setup.conv_parts);
    };
    batch_.q = split(columns.q_begin, columns.num_keys, Map::kEluPlusOne);
    batch_.k = split(columns.k_begin, columns.num_keys, Map::kEluPlusOne);
    batch_.v = split(columns.v_begin, columns.num_values, Map::kNone);
    if (!setup.config->rls) {
      raw_keys_ = split(columns.k_begin, columns.num_keys, Map::kNone);
      write_direction_ = setup.layer->plan->Rows(columns.num_keys);
      batch_.write_direction = write_direction_;
    }
    const float* gain =
        setup.weights->read_gain.empty() ? nullptr : setup.weights->read_gain.data();
    batch_.out = AddJoin(setup, nullptr, gain);
    const SlotArrays& arrays = *setup.layer->arrays;
    batch_.a = arrays.Floats((*setup.parts)[0]);
    batch_.s = arrays.Floats((*setup.parts)[1]);
    batch_.key_sum = arrays.Floats((*setup.parts)[2]);
  }

  absl::Status Forward(const ForwardBatch& batch) const override {
    const int64_t rows = batch.sequences.num_tokens;
    if (write_direction_ != nullptr) {
      LETHE_RETURN_IF_ERROR(
          MatmulBatch(batch.queue, raw_keys_, rows, *w_u_, kActivationTerms, write_direction_));
      LETHE_RETURN_IF_ERROR(elementwise::L2NormalizeRows(
          batch.queue, write_direction_, {rows * options_.num_heads, options_.key_dim},
          std::sqrt(static_cast<float>(options_.key_dim)), write_direction_));
    }
    VlaBatch call = batch_;
    call.num_sequences = batch.sequences.num_sequences;
    call.num_tokens = rows;
    call.max_length = batch.sequences.longest;
    call.offsets = batch.offsets;
    call.slots = batch.sequences.slots;
    call.step_counts = batch.sequences.ranks;
    return VlaFold(batch.queue, options_, call);
  }

 private:
  VlaOptions options_;
  const DeviceMatrix* w_u_;
  const float* raw_keys_ = nullptr;
  float* write_direction_ = nullptr;
  VlaBatch batch_;
};

class OvqGroup final : public DeviceGroup {
 public:
  explicit OvqGroup(const GroupSetup& setup)
      : shape_(OvqShapeOf(*setup.config)), num_heads_(setup.config->heads) {
    const GroupColumns& columns = setup.columns;
    const auto split = [&](int64_t begin, int64_t num_columns) {
      return AddSplit(setup, begin, num_columns, Map::kNone, setup.conv_parts);
    };
    q_ = split(columns.q_begin, columns.num_keys);
    k_ = split(columns.k_begin, columns.num_keys);
    v_ = split(columns.v_begin, columns.num_values);
    for (float* keys : {q_, k_}) {
      setup.norm_parts->push_back({keys, columns.num_keys, shape_.key_dim});
    }
    out_ = AddJoin(setup, nullptr, nullptr);
    logit_scales_ = setup.weights->logit_scales.data();
    const SlotArrays& arrays = *setup.layer->arrays;
    states_ = {int64_t{1} << 30,  // of the pool; nobody counts them
               arrays.Floats((*setup.parts)[0]),
               arrays.Floats((*setup.parts)[1]),
               arrays.Ints((*setup.parts)[2]),
               arrays.Floats((*setup.parts)[3]),
               arrays.Floats((*setup.parts)[4])};
    workspace_.bytes = WorkspaceBytes(*setup.layer);
    workspace_.data = setup.layer->plan->Bytes(workspace_.bytes);
  }

  absl::Status Forward(const ForwardBatch& batch) const override {
    const int64_t rows = batch.sequences.num_tokens;
    OvqBatchSize size{num_heads_,
                      batch.sequences.num_sequences,
                      rows,
                      batch.sequences.longest,
                      batch.most_tokens_after,
                      0};
    // By default a call takes as many chunks at once as 256 MiB hold.
    if (OvqWorkspaceBytes(batch.queue->kind(), shape_, size) > workspace_.bytes) {
      size.segment_chunks = 1;
    }
    const OvqInputs inputs{
        batch.offsets, batch.sequences.slots, batch.sequences.ranks, logit_scales_, q_, k_, v_};
    return OvqBatch(batch.queue, shape_, size, inputs, states_, out_, nullptr, workspace_);
  }

 private:
  // With one chunk at a time a larger call needs more, so that this is enough for every call.
  size_t WorkspaceBytes(const LayerSetup& layer) const {
    size_t most = 0;
    for (const int64_t max_length : {int64_t{1}, layer.max_tokens}) {
      const OvqBatchSize size{num_heads_, layer.max_sequences, layer.max_tokens,
                              max_length, layer.most_tokens,   1};
      most = std::max(most, OvqWorkspaceBytes(layer.queue->kind(), shape_, size));
    }
    const OvqBatchSize alone{num_heads_,        1, layer.max_tokens, layer.max_tokens,
                             layer.most_tokens, 0};
    return std::max(most, OvqWorkspaceBytes(layer.queue->kind(), shape_, alone));
  }

  OvqShape shape_;
  int64_t num_heads_;
  float* q_;
  float* k_;
  float* v_;
  float* out_;
  const float* logit_scales_;
  OvqStates states_;
  OvqWorkspace workspace_;
};

class WindowGroup final : public DeviceGroup {
 public:
  explicit WindowGroup(const GroupSetup& setup)
      : shape_(WindowShapeOf(*setup.config)), slopes_(setup.weights->alibi_slopes.data()) {
    const GroupColumns& columns = setup.columns;
    const auto split = [&](int64_t begin, int64_t num_columns) {
      return AddSplit(setup, begin, num_columns, Map::kNone, setup.conv_parts);
    };
    q_ = split(columns.q_begin, columns.num_keys);
    k_ = split(columns.k_begin, columns.num_keys);
    v_ = split(columns.v_begin, columns.num_values);
    out_ = AddJoin(setup, nullptr, nullptr);
    pool_ = {setup.layer->arrays->Floats((*setup.parts)[0]),
             setup.layer->arrays->Floats((*setup.parts)[1])};
  }

  absl::Status Forward(const ForwardBatch& batch) const override {
    return WindowAttentionBatch(batch.queue, shape_, slopes_, q_, k_, v_, batch.sequences, pool_,
                                out_);
  }

 private:
  WindowAttentionShape shape_;
  const float* slopes_;
  const float* q_;
  const float* k_;
  const float* v_;
  float* out_;
  WindowAttentionPool pool_;
};

class SvGroup final : public DeviceGroup {
 public:
  explicit SvGroup(const GroupSetup& setup)
      : shape_{setup.config->heads, setup.config->key_dim, setup.config->value_dim},
        index_(static_cast<size_t>((*setup.layer->num_sv_groups)++)),
        scales_(setup.weights->logit_scales.data()) {
    const GroupColumns& columns = setup.columns;
    const auto split = [&](int64_t begin, int64_t num_columns) {
      return AddSplit(setup, begin, num_columns, Map::kNone, setup.conv_parts);
    };
    float* q = split(columns.q_begin, columns.num_keys);
    float* k = split(columns.k_begin, columns.num_keys);
    v_ = split(columns.v_begin, columns.num_values);
    for (float* keys : {q, k}) {
      setup.norm_parts->push_back({keys, columns.num_keys, shape_.key_dim});
    }
    q_ = q;
    k_ = k;
    out_ = AddJoin(setup, nullptr, nullptr);
  }

  absl::Status Forward(const ForwardBatch& batch) const override {
    return SvReadBatch(batch.queue, shape_, scales_, q_, k_, v_, batch.sequences,
                       batch.sv_tables->heads(index_), batch.most_distinct, out_);
  }

 private:
  SvReadShape shape_;
  size_t index_;  // of the model's sv groups
  const float* scales_;
  const float* q_;
  const float* k_;
  const float* v_;
  float* out_;
};

}  // namespace

float* AddSplit(const GroupSetup& setup, int64_t begin, int64_t num_columns, Map map,
                std::vector<elementwise::SplitPart>* parts) {
  float* buffer = setup.layer->plan->Rows(num_columns);
  parts->push_back({begin, num_columns, map, nullptr, nullptr, buffer});
  return buffer;
}

float* AddJoin(const GroupSetup& setup, const float* factor, const float* gain) {
  const int64_t num_columns = setup.columns.num_values;
  float* buffer = setup.layer->plan->Rows(num_columns);
  setup.join_parts->push_back(
      {setup.first_read, num_columns, buffer, factor, gain, setup.config->value_dim});
  return buffer;
}

std::unique_ptr<DeviceGroup> MakeVlaGroup(const GroupSetup& setup) {
  return std::make_unique<VlaGroup>(setup);
}
std::unique_ptr<DeviceGroup> MakeOvqGroup(const GroupSetup& setup) {
  return std::make_unique<OvqGroup>(setup);
}
std::unique_ptr<DeviceGroup> MakeWindowGroup(const GroupSetup& setup) {
  return std::make_unique<WindowGroup>(setup);
}
std::unique_ptr<DeviceGroup> MakeSvGroup(const GroupSetup& setup) {
  return std::make_unique<SvGroup>(setup);
}

}  // namespace lethe
