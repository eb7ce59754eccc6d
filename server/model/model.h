// Model: the immutable weights of a model directory, shared by all sessions.
//
// Equation:  docs/model-format.md. digest = SHA-256 over the canonical config and all tensors
//            (docs/state-digest.md).
// Shapes:    as docs/model-format.md.
// Units:     none.
// Requires:  none.
// Rejects:   Load: NOT_FOUND for a missing file, INVALID_ARGUMENT that names the key or tensor and
//            what is accepted, DATA_LOSS for a file that ends early.
// Effects:   none after Load and AttachBackend.
// Numerics:  weights widened to f32 without change of value.
// Threads:   safe.
#ifndef LETHE_SERVER_MODEL_MODEL_H_
#define LETHE_SERVER_MODEL_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/crypto/sha256.h"
#include "server/model/config.h"
#include "server/model/numerics_id.h"
#include "server/model/safetensors.h"

namespace lethe {

struct LayerWeights;
struct HeadWeights;
class ModelBackend;

class Model {
 public:
  static absl::StatusOr<std::shared_ptr<const Model>> Load(const std::string& directory);
  // From tensors in memory; every tensor that the config implies and no other.
  static absl::StatusOr<std::shared_ptr<const Model>> Create(const ModelConfig& config,
                                                             const TensorMap& tensors);
  ~Model();

  const ModelConfig& config() const { return config_; }
  const audit::Sha256Digest& digest() const { return digest_; }

  // Tokenizer "bytes": a vocab_id is a byte value.
  std::vector<int32_t> Tokenize(absl::string_view text) const;
  // The bytes of one token.
  std::string TokenBytes(int32_t vocab_id) const;

  // Sessions made from now on compute there, with this arithmetic, and with nothing else: once it is gone they are
  // refused. Before the first session; the backend may hold the model.
  void AttachBackend(const std::shared_ptr<ModelBackend>& backend) const;
  // Null: the CPU. UNAVAILABLE: what was attached is gone.
  absl::StatusOr<std::shared_ptr<ModelBackend>> backend() const;
  Numerics numerics() const { return numerics_.value_or(CpuNumerics()); }

  const LayerWeights& layer(size_t index) const { return *layers_[index]; }
  const HeadWeights& head() const { return *head_; }

 private:
  explicit Model(const ModelConfig& config);
  ModelConfig config_;
  audit::Sha256Digest digest_{};
  std::vector<std::unique_ptr<LayerWeights>> layers_;
  std::unique_ptr<HeadWeights> head_;
  mutable std::optional<Numerics> numerics_;  // of the backend; none: the CPU's
  mutable std::weak_ptr<ModelBackend> backend_;
};

// Of a session's model; null: of vectors, which compute on the CPU.
inline Numerics NumericsOf(const Model* model) {
  return model != nullptr ? model->numerics() : CpuNumerics();
}

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_MODEL_H_
