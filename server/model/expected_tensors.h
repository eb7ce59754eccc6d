// TensorSpec, ExpectedTensors: the tensors that a config implies, names and shapes.
//
// Equation:  none; docs/model-format.md section 2.
// Shapes:    row-major, as stored.
// Units:     elements.
// Requires:  a config from ParseModelConfig.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_MODEL_EXPECTED_TENSORS_H_
#define LETHE_SERVER_MODEL_EXPECTED_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/model/config.h"

namespace lethe {

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
};

std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config);

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_EXPECTED_TENSORS_H_
