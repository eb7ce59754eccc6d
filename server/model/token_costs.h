// TokenCosts: what a token costs on each way through a model, to choose between them.
//
// Equation:  multiply-adds per token, counted from the config; reads of the support-vector and OVQ
//            memories at their full size.
// Shapes:    none.
// Units:     multiply-adds.
// Requires:  a config from ParseModelConfig.
// Rejects:   none.
// Effects:   none.
// Numerics:  an estimate: memory traffic and elementary functions are left out.
// Threads:   safe.
#ifndef LETHE_SERVER_MODEL_TOKEN_COSTS_H_
#define LETHE_SERVER_MODEL_TOKEN_COSTS_H_

#include <cstdint>

#include "server/model/config.h"

namespace lethe {

struct TokenCosts {
  int64_t model = 0;   // every layer
  int64_t local = 0;   // layers below the bank, and what the bank takes
  int64_t replay = 0;  // the bank's streaming memories from stored inputs
};

// `local` and `replay` are 0 for a model without a bank.
TokenCosts TokenCostsOf(const ModelConfig& config);

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_TOKEN_COSTS_H_
