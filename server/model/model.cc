#include "server/model/model.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"
#include "server/model/expected_tensors.h"
#include "server/model/model_backend.h"
#include "server/model/weights.h"

namespace lethe {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Exactly the tensors that the config implies, with their shapes.
absl::Status CheckTensors(const std::vector<TensorSpec>& expected, const TensorMap& tensors) {
  for (const TensorSpec& spec : expected) {
    const auto found = tensors.find(spec.name);
    if (found == tensors.end()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", spec.name, " is missing"));
    }
    if (found->second.shape != spec.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", spec.name, ": shape must be ", ShapeText(spec.shape),
                       " as the config says, got ", ShapeText(found->second.shape)));
    }
  }
  if (tensors.size() == expected.size()) return absl::OkStatus();
  for (const auto& [name, tensor] : tensors) {
    bool is_known = false;
    for (const TensorSpec& spec : expected) is_known = is_known || spec.name == name;
    if (!is_known) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", name, " is none of those that the config implies"));
    }
  }
  return absl::OkStatus();
}

audit::Sha256Digest ModelDigest(const ModelConfig& config, const std::vector<TensorSpec>& specs,
                                const TensorMap& tensors) {
  constexpr char kDomain[] = "lethe-model-v1";  // its terminating NUL is part of the format
  audit::Sha256 sha;
  ByteWriter head;
  head.Raw(kDomain, sizeof kDomain);
  head.String(config.CanonicalJson());
  head.U64(specs.size());
  sha.Update(head.bytes());
  for (const TensorSpec& spec : specs) {
    const Tensor& tensor = tensors.at(spec.name);
    ByteWriter writer;
    writer.String(spec.name);
    writer.Array(absl::MakeConstSpan(tensor.shape));
    writer.Array(absl::MakeConstSpan(tensor.values));
    sha.Update(writer.bytes());
  }
  return sha.Finish();
}

}  // namespace

Model::Model(const ModelConfig& config) : config_(config) {}
Model::~Model() = default;

absl::StatusOr<std::shared_ptr<const Model>> Model::Create(const ModelConfig& config,
                                                           const TensorMap& tensors) {
  const std::vector<TensorSpec> specs = ExpectedTensors(config);
  LETHE_RETURN_IF_ERROR(CheckTensors(specs, tensors));
  std::shared_ptr<Model> model(new Model(config));
  model->digest_ = ModelDigest(config, specs, tensors);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    model->layers_.push_back(MakeLayerWeights(config, i, tensors));
  }
  model->head_ = MakeHeadWeights(tensors);
  return std::shared_ptr<const Model>(std::move(model));
}

absl::StatusOr<std::shared_ptr<const Model>> Model::Load(const std::string& directory) {
  LETHE_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(directory + "/config.json"));
  LETHE_ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(text));
  std::vector<std::string> names;
  for (const TensorSpec& spec : ExpectedTensors(config)) names.push_back(spec.name);
  LETHE_ASSIGN_OR_RETURN(const TensorMap tensors,
                         ReadSafetensors(directory + "/model.safetensors", names));
  return Create(config, tensors);
}

std::vector<int32_t> Model::Tokenize(absl::string_view text) const {
  std::vector<int32_t> vocab_ids;
  vocab_ids.reserve(text.size());
  for (const char c : text) vocab_ids.push_back(static_cast<unsigned char>(c));
  return vocab_ids;
}

std::string Model::TokenBytes(int32_t vocab_id) const {
  return std::string(1, static_cast<char>(static_cast<unsigned char>(vocab_id)));
}

void Model::AttachBackend(const std::shared_ptr<ModelBackend>& backend) const {
  numerics_ = backend->numerics();
  backend_ = backend;
}

absl::StatusOr<std::shared_ptr<ModelBackend>> Model::backend() const {
  if (!numerics_.has_value()) return nullptr;
  std::shared_ptr<ModelBackend> backend = backend_.lock();
  if (backend == nullptr) return absl::UnavailableError("the model's device is gone");
  return backend;
}

}  // namespace lethe
