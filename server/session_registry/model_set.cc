#include "server/session_registry/model_set.h"

#include <utility>

#include "server/error/error_info.h"

namespace lethe {

absl::Status ModelSet::Add(std::shared_ptr<const Model> model) {
  const std::string name = model->config().name;
  if (!models_.emplace(name, std::move(model)).second) {
    return absl::AlreadyExistsError("two model directories have the same name in config.json");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Model>> ModelSet::Find(const std::string& name) const {
  if (models_.empty()) {
    return WithErrorInfo(absl::FailedPreconditionError(
                             "model: this server has none (--no-model): it serves vector sessions"),
                         {"NO_MODEL", {{"field", "model"}}});
  }
  if (name.empty()) {
    if (models_.size() == 1) return models_.begin()->second;
    return InvalidFieldError("model", "a name of ListModels (this server has several models)");
  }
  const auto found = models_.find(name);
  if (found == models_.end()) {
    return WithErrorInfo(absl::NotFoundError("model: no such model"),
                         {"MODEL_NOT_FOUND", {{"field", "model"}}});
  }
  return found->second;
}

}  // namespace lethe
