// AddModelFeatures, AddVectorFeatures: what a server computes from inputs to be forgotten, computed here from a copy.
//
// Threads: compatible.
#ifndef LETHE_TESTS_ERASURE_FEATURES_H_
#define LETHE_TESTS_ERASURE_FEATURES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/model/model.h"
#include "tests/erasure/markers.h"

namespace lethe::testing {

struct PlantedText {
  std::string text;
  std::string label;  // empty: stays
};

// Of each token of a text with a label, in the order that the session was fed: the residual stream that the bank took,
// its projections, what the streaming heads stored, keys and values of the support-vector head, and the logits.
void AddModelFeatures(const std::shared_ptr<const Model>& model,
                      const std::vector<PlantedText>& texts, Markers* markers);

// The kernel function between forgotten and retained keys ([][kKeyDim], the width of Requests).
void AddVectorFeatures(const std::vector<double>& forgotten, const std::vector<double>& retained,
                       Markers* markers);

}  // namespace lethe::testing

#endif  // LETHE_TESTS_ERASURE_FEATURES_H_
