// ModelBackend: where a model's sessions compute when each is not computed on its caller's thread.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  a backend outlives the states that it made, or keeps alive what they need.
// Rejects:   NewState: INVALID_ARGUMENT that names an option that the backend does not take; its own errors.
// Effects:   none.
// Numerics:  numerics() is of the states that NewState makes: two that say the same are equal, bit for bit,
//            after the same tokens.
// Threads:   safe.
#ifndef LETHE_SERVER_MODEL_MODEL_BACKEND_H_
#define LETHE_SERVER_MODEL_MODEL_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"

#include "server/model/model.h"
#include "server/model/model_state.h"

namespace lethe {

class ModelBackend {
 public:
  virtual ~ModelBackend() = default;
  virtual absl::StatusOr<std::unique_ptr<ModelState>> NewState(
      std::shared_ptr<const Model> model, const MemoryOverrides& overrides) = 0;
  virtual Numerics numerics() const = 0;
};

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_MODEL_BACKEND_H_
