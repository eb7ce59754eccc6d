// DeviceBenchModels: configurations whose shapes device_bench.h measures.
//
// Shapes:   tiny: lethe-tiny's layers without its support-vector group. hybrid: 12 times a local and a memory
//           layer of width 1024, 16 heads of 64, four of each streaming kind. mamba2: 24 layers of palimpsa_m
//           without metaplasticity, the shape of Mamba2-130m.
// Units:    none.
// Requires: none.
// Rejects:  none.
// Effects:  none.
// Numerics: weights are random BF16 values.
// Threads:  safe.
#ifndef LETHE_SERVER_BENCH_DEVICE_MODELS_H_
#define LETHE_SERVER_BENCH_DEVICE_MODELS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/model/model.h"

namespace lethe::bench {

struct DeviceBenchModel {
  std::string name;
  std::string config_json;
};

std::vector<DeviceBenchModel> DeviceBenchModels();
absl::StatusOr<std::shared_ptr<const Model>> MakeBf16Model(const std::string& config_json);

}  // namespace lethe::bench

#endif  // LETHE_SERVER_BENCH_DEVICE_MODELS_H_
