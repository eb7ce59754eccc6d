// ReferenceForward: the model in double precision, sequential and literal: the oracle of the f32
// forms and the C++ side of the parity with PyTorch.
//
// Equation:  docs/model-format.md section 2, in its order.
// Shapes:    logits: [T][vocab_size]; layer_outputs: [layers][width], of the last token.
// Units:     none.
// Requires:  tensors that Model::Create accepts for the config; vocab_ids in range, not empty
//            (checked by LETHE_CHECK).
// Rejects:   what the memories reject (a non-finite key, a ridge too small for the number of keys).
// Effects:   none.
// Numerics:  f64, plain loops, the C library's functions: never part of a state. Cost O(T^2) in the
//            support-vector reads.
// Threads:   safe.
#ifndef LETHE_SERVER_MODEL_REFERENCE_H_
#define LETHE_SERVER_MODEL_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "server/model/config.h"
#include "server/model/safetensors.h"

namespace lethe {

struct ReferenceOutput {
  std::vector<std::vector<double>> logits;
  std::vector<std::vector<double>> layer_outputs;
};

absl::StatusOr<ReferenceOutput> ReferenceForward(const ModelConfig& config,
                                                 const TensorMap& tensors,
                                                 absl::Span<const int32_t> vocab_ids);

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_REFERENCE_H_
