// CallBytes, CheckError: any bytes to any method of a server, and what must hold of every error.
//
// Effects:   CallBytes: a call with these messages, whatever they are; what was answered before the status goes to `replies`.
//            CheckError aborts (LETHE_CHECK) when an error is none that a service gives: a code for bugs, no ErrorInfo, or a message that
//            repeats content.
// Threads:   safe.
#ifndef LETHE_TESTS_FUZZ_FUZZ_CALL_H_
#define LETHE_TESTS_FUZZ_FUZZ_CALL_H_

#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

namespace lethe::fuzz {

// No input of a target and no name in the API holds it by chance: what a base session was told.
inline constexpr char kContentCanary[] = "zelvim qo71";

grpc::Status CallBytes(const std::shared_ptr<grpc::Channel>& channel,
                       const google::protobuf::MethodDescriptor& method,
                       const std::vector<std::string>& messages, std::vector<std::string>* replies);

void CheckError(const std::string& method, const grpc::Status& status);

}  // namespace lethe::fuzz

#endif  // LETHE_TESTS_FUZZ_FUZZ_CALL_H_
