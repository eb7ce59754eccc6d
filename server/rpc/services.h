// MakeSessionService … MakeMemoryService: the adapters of proto/lethe/v1, one .cc each: they check
// every field, call the inner layers and convert. No logic beyond that lives here.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  core outlives the service.
// Rejects:   as the comments of the .proto files; every error carries an ErrorInfo.
// Effects:   none beyond the inner layers'.
// Numerics:  none.
// Threads:   safe: gRPC calls handlers from its own threads, one call per thread.
#ifndef LETHE_SERVER_RPC_SERVICES_H_
#define LETHE_SERVER_RPC_SERVICES_H_

#include <memory>

namespace grpc {
class Service;
}  // namespace grpc

namespace lethe {

struct ServerCore;

std::unique_ptr<grpc::Service> MakeSessionService(ServerCore* core);
std::unique_ptr<grpc::Service> MakeGenerationService(ServerCore* core);
std::unique_ptr<grpc::Service> MakeForgettingService(ServerCore* core);
std::unique_ptr<grpc::Service> MakeCertificationService(ServerCore* core);
std::unique_ptr<grpc::Service> MakeAuditService(ServerCore* core);
std::unique_ptr<grpc::Service> MakeModelService(ServerCore* core);
std::unique_ptr<grpc::Service> MakeMemoryService(ServerCore* core);

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_SERVICES_H_
