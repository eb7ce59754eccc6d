// SmallModel, ContextualModel, StreamingModel: fixed random-weight models for tests of the engine.
//
// The same bits in every process (server/model/synthetic_model.h).
// Threads: safe.
#ifndef LETHE_TESTS_TESTING_SMALL_MODEL_H_
#define LETHE_TESTS_TESTING_SMALL_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/model/model.h"

namespace lethe::testing {

// Local layer, one bank of every memory kind, mlp: lethe-tiny's shape (bounded).
std::string SmallConfigJson();
// Memory layers at two depths, so that what the upper stores depends on what the lower reads.
std::string ContextualConfigJson();
// Cheap for long histories: no support-vector memory.
std::string StreamingConfigJson();

std::shared_ptr<const Model> ModelOf(const std::string& config_json, uint64_t seed = 1);
inline std::shared_ptr<const Model> SmallModel() { return ModelOf(SmallConfigJson()); }
inline std::shared_ptr<const Model> ContextualModel() { return ModelOf(ContextualConfigJson()); }
inline std::shared_ptr<const Model> StreamingModel() { return ModelOf(StreamingConfigJson()); }

// `count` vocab_ids below 32, repeats included.
std::vector<int32_t> SampleIds(int64_t count, uint64_t seed = 1);

// config.json and model.safetensors of a synthetic model in a new directory under `parent`.
std::string WriteModelDirectory(const std::string& parent, const std::string& config_json,
                                uint64_t seed = 1);

}  // namespace lethe::testing

#endif  // LETHE_TESTS_TESTING_SMALL_MODEL_H_
