// LayerWeights, HeadWeights: the weights of one layer in the form that the kernels take.
//
// Equation:  docs/model-format.md section 2, names as there.
// Shapes:    as docs/model-format.md; matrices packed, vectors as stored.
// Units:     none.
// Requires:  MakeLayerWeights: every tensor of ExpectedTensors is present with its shape
//            (Model::Create checks).
// Rejects:   none.
// Effects:   none; immutable after construction.
// Numerics:  functions of single weights (exp(A_log), softplus(b_scale)) are taken once, in f32.
// Threads:   safe.
#ifndef LETHE_SERVER_MODEL_WEIGHTS_H_
#define LETHE_SERVER_MODEL_WEIGHTS_H_

#include <cstddef>
#include <memory>
#include <variant>
#include <vector>

#include "kernels/causal_conv/causal_conv.h"
#include "kernels/matmul/matmul.h"
#include "server/model/config.h"
#include "server/model/safetensors.h"

namespace lethe {

// x += w_down (silu(w_gate h) * (w_up h)), h = rms_norm(x, norm).
struct MlpWeights {
  std::vector<float> norm;
  PackedMatrix w_gate;
  PackedMatrix w_up;
  PackedMatrix w_down;
};

struct LocalWeights {
  std::vector<float> norm1;
  CausalConvWeights conv;
  PackedMatrix wq, wk, wv, wo;
  std::vector<float> alibi_slopes;
  MlpWeights mlp;
};

struct PalimpsaWeights {
  PackedMatrix w_dt, w_bs, w_b1, w_b2, w_z;
  std::vector<float> dt_bias;     // [H]
  std::vector<float> decay_rate;  // [H]: -exp(A_log)
  std::vector<float> b_gain;      // [H]: softplus(b_scale)
  std::vector<float> skip;        // [H]: D
  std::vector<float> out_norm;    // [V], or [H*V] for one norm over the group
};

struct GroupWeights {
  PackedMatrix wq, wk, wv;
  CausalConvWeights conv_q, conv_k, conv_v;
  std::vector<float> beta;  // sv, ovq
  PalimpsaWeights palimpsa;
  PackedMatrix w_u;              // vla, not for rls
  std::vector<float> read_gain;  // vla with read_norm rms
  std::vector<float> alibi_slopes;
};

struct MemoryWeights {
  std::vector<float> norm;
  std::vector<GroupWeights> groups;
  PackedMatrix wo;
};

struct LayerWeights {
  std::variant<LocalWeights, MlpWeights, MemoryWeights> layer;
};

struct HeadWeights {
  std::vector<float> embed;  // [vocab][width]
  std::vector<float> final_norm;
  PackedMatrix lm_head;
};

std::unique_ptr<LayerWeights> MakeLayerWeights(const ModelConfig& config, size_t layer_index,
                                               const TensorMap& tensors);
std::unique_ptr<HeadWeights> MakeHeadWeights(const TensorMap& tensors);

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_WEIGHTS_H_
