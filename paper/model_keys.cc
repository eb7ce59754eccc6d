#include "paper/model_keys.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/model/model.h"
#include "server/model/model_state.h"

namespace lethe::paper {
namespace {

bool IsThere(const char* path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

absl::StatusOr<Points> ModelKeys(const std::string& model, const std::string& text) {
  if ((model.empty() && !IsThere(kDefaultModel)) || (text.empty() && !IsThere(kDefaultText))) {
    return Points{};
  }
  const std::string path = text.empty() ? kDefaultText : text;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat("--text: cannot read ", path));
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> loaded,
                         Model::Load(model.empty() ? kDefaultModel : model));
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelState> state, ModelState::Create(loaded, {}));
  LETHE_RETURN_IF_ERROR(state->Evaluate(loaded->Tokenize(content.str())));
  const std::vector<ModelState::SvGroup> groups = state->SvGroups();
  if (groups.empty()) {
    return absl::InvalidArgumentError("--model: wants a model with a support-vector head");
  }
  const svdd::SvHeadView head = groups[0].memory->head(0);
  if (head.gated_keys.empty()) {
    return absl::InvalidArgumentError("--text: wants at least 64 tokens");
  }
  return Points{head.params->key_dim,
                std::vector<double>(head.gated_keys.begin(), head.gated_keys.end())};
}

}  // namespace lethe::paper
