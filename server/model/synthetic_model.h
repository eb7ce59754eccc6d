// SyntheticTensors: fixed weights for a config, made by integer arithmetic: the model of the
// numerics self-test and of tests.
//
// Equation:  uniform numbers from SplitMix64 (Steele, Lea, Flood 2014) keyed by seed and tensor
//            name; matrices scaled to variance 1/fan_in, gates and norms near the values that
//            training starts from.
// Shapes:    ExpectedTensors(config).
// Units:     none.
// Requires:  a config from ParseModelConfig.
// Rejects:   none.
// Effects:   none.
// Numerics:  the same bits on every machine: integer operations, one product and one root.
// Threads:   safe.
#ifndef LETHE_SERVER_MODEL_SYNTHETIC_MODEL_H_
#define LETHE_SERVER_MODEL_SYNTHETIC_MODEL_H_

#include <cstdint>

#include "server/model/config.h"
#include "server/model/safetensors.h"

namespace lethe {

TensorMap SyntheticTensors(const ModelConfig& config, uint64_t seed);

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_SYNTHETIC_MODEL_H_
