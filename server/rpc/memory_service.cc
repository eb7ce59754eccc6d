#include "lethe/v1/memory.grpc.pb.h"
#include "server/error/error_info.h"
#include "server/rpc/grpc_call.h"
#include "server/rpc/services.h"

namespace lethe {
namespace {

absl::Status NotBuilt() {
  return WithErrorInfo(absl::UnimplementedError("vector sessions come with a later version"),
                       {"VECTOR_SESSIONS_NOT_BUILT", {}});
}

class MemoryService final : public v1::MemoryService::Service {
 public:
  explicit MemoryService(ServerCore* core) : core_(core) {}

  grpc::Status AppendVectors(grpc::ServerContext* context, const v1::AppendVectorsRequest* /*req*/,
                             v1::AppendVectorsResponse* /*response*/) override {
    return Serve("AppendVectors", context, core_, [](const Call&) { return NotBuilt(); });
  }
  grpc::Status Read(grpc::ServerContext* context, const v1::ReadRequest* /*request*/,
                    v1::ReadResponse* /*response*/) override {
    return Serve("Read", context, core_, [](const Call&) { return NotBuilt(); });
  }
  grpc::Status Partition(grpc::ServerContext* context, const v1::PartitionRequest* /*request*/,
                         v1::PartitionResponse* /*response*/) override {
    return Serve("Partition", context, core_, [](const Call&) { return NotBuilt(); });
  }

 private:
  ServerCore* const core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeMemoryService(ServerCore* core) {
  return std::make_unique<MemoryService>(core);
}

}  // namespace lethe
