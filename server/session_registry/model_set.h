// ModelSet: the models that this server loaded, by name.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   Add: ALREADY_EXISTS for a second model of one name. Find: NOT_FOUND, reason
//            MODEL_NOT_FOUND; INVALID_ARGUMENT for an empty name when there are several models;
//            FAILED_PRECONDITION, reason NO_MODEL, when there is none.
// Effects:   none.
// Numerics:  none.
// Threads:   safe when const.
#ifndef LETHE_SERVER_SESSION_REGISTRY_MODEL_SET_H_
#define LETHE_SERVER_SESSION_REGISTRY_MODEL_SET_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/model/model.h"

namespace lethe {

class ModelSet {
 public:
  absl::Status Add(std::shared_ptr<const Model> model);
  // By name; an empty name means the only model.
  absl::StatusOr<std::shared_ptr<const Model>> Find(const std::string& name) const;
  const std::map<std::string, std::shared_ptr<const Model>>& models() const { return models_; }

 private:
  std::map<std::string, std::shared_ptr<const Model>> models_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_MODEL_SET_H_
