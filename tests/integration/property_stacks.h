// PropertyStacks: the small random-weight models of the exact-forgetting property test.
//
// Every memory kind stands at several depths, below and above local and token-wise layers. Sizes are chosen so that
// short histories reach the events that matter: OVQ fills its slots within two chunks, VLA nudges every 20 tokens,
// support-vector gates have reserve tokens from the second boundary on. The same bits in every process.
// Threads: safe.
#ifndef LETHE_TESTS_INTEGRATION_PROPERTY_STACKS_H_
#define LETHE_TESTS_INTEGRATION_PROPERTY_STACKS_H_

#include <memory>
#include <vector>

#include "server/model/model.h"

namespace lethe::testing {

std::vector<std::shared_ptr<const Model>> PropertyStacks();

}  // namespace lethe::testing

#endif  // LETHE_TESTS_INTEGRATION_PROPERTY_STACKS_H_
