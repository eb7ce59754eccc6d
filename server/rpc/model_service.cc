#include <string>
#include <variant>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "lethe/v1/model.grpc.pb.h"
#include "server/error/error_info.h"
#include "server/model/numerics_id.h"
#include "server/rpc/grpc_call.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/services.h"
#include "server/rpc/validation.h"

namespace lethe {
namespace {

void SetModel(const Model& model, v1::Model* message) {
  const ModelConfig& config = model.config();
  message->set_name(config.name);
  message->set_model_digest(DigestBytes(model.digest()));
  const Numerics numerics = model.numerics();
  message->set_numerics_id(DigestBytes(numerics.id));
  message->set_device_kind(numerics.device_kind);
  message->set_vocab_size(static_cast<int32_t>(config.vocab_size));
  message->set_tokenizer(config.tokenizer);
  message->set_max_tokens(config.max_tokens);
  message->set_num_parameters(config.num_parameters);
  message->set_local_receptive_field(config.local_receptive_field);
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    const auto* memory = std::get_if<MemoryLayerConfig>(&config.layers[layer]);
    if (memory == nullptr) continue;
    for (size_t group = 0; group < memory->groups.size(); ++group) {
      const GroupConfig& from = memory->groups[group];
      v1::MemoryGroup* added = message->add_memory_groups();
      added->set_name(absl::StrCat("layer.", layer, ".group.", group));
      added->set_kind(std::string(MemoryKindName(from.kind)));
      added->set_num_heads(static_cast<int32_t>(from.heads));
      added->set_key_dim(static_cast<int32_t>(from.key_dim));
      added->set_value_dim(static_cast<int32_t>(from.value_dim));
      added->set_bounded(memory->bounded);
    }
  }
}

class ModelService final : public v1::ModelService::Service {
 public:
  explicit ModelService(ServerCore* core) : core_(core) {}

  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest* /*request*/,
                          v1::ListModelsResponse* response) override {
    return Serve("ListModels", context, core_, [&](const Call& /*call*/) -> absl::Status {
      for (const auto& [name, model] : core_->models.models()) {
        SetModel(*model, response->add_models());
      }
      return absl::OkStatus();
    });
  }

  grpc::Status GetModel(grpc::ServerContext* context, const v1::GetModelRequest* request,
                        v1::GetModelResponse* response) override {
    return Serve("GetModel", context, core_, [&](const Call& /*call*/) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto model, core_->models.Find(request->name()));
      SetModel(*model, response->mutable_model());
      return absl::OkStatus();
    });
  }

  grpc::Status Tokenize(grpc::ServerContext* context, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    return Serve("Tokenize", context, core_, [&](const Call& /*call*/) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto model, core_->models.Find(request->model()));
      if (request->text().size() > kTextBytesMax) {
        return InvalidFieldError("text", absl::StrCat("at most ", kTextBytesMax, " bytes"));
      }
      for (const int32_t id : model->Tokenize(request->text())) response->add_vocab_ids(id);
      return absl::OkStatus();
    });
  }

  grpc::Status Detokenize(grpc::ServerContext* context, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override {
    return Serve("Detokenize", context, core_, [&](const Call& /*call*/) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto model, core_->models.Find(request->model()));
      LETHE_RETURN_IF_ERROR(CheckVocabIds("input.vocab_ids", request->input(), *model));
      for (const int32_t id : request->input().vocab_ids()) {
        response->mutable_text()->append(model->TokenBytes(id));
      }
      return absl::OkStatus();
    });
  }

 private:
  ServerCore* const core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeModelService(ServerCore* core) {
  return std::make_unique<ModelService>(core);
}

}  // namespace lethe
