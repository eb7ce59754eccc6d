// FuzzServer: a whole server in this process as a fuzz target calls it: any bytes to any method, and what must hold of every
// answer.
//
// Requires:  none. Its model is TinyModel, its data directory lies in memory.
// Effects:   Call, Ask abort (LETHE_CHECK) when an error is none that a service gives: a code for bugs, no ErrorInfo, or a
//            message that repeats content.
// Threads:   compatible.
#ifndef LETHE_TESTS_FUZZ_FUZZ_SERVER_H_
#define LETHE_TESTS_FUZZ_FUZZ_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/support/status.h>

#include "tests/audit/temp_directory.h"
#include "tests/fuzz/fuzz_call.h"
#include "tests/integration/server_testing.h"

namespace lethe::fuzz {

inline constexpr char kExportKey[] = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";

class FuzzServer {
 public:
  FuzzServer();
  ~FuzzServer();
  FuzzServer(const FuzzServer&) = delete;
  FuzzServer& operator=(const FuzzServer&) = delete;

  // Every service, each in the order of its file; both only grow at their ends.
  static const google::protobuf::MethodDescriptor* Method(size_t service, size_t method);
  static const google::protobuf::MethodDescriptor* Method(const char* service, const char* method);
  static size_t num_services();

  // A call with these messages, whatever they are; what was answered before the status goes to `replies`.
  grpc::Status Call(const google::protobuf::MethodDescriptor& method,
                    const std::vector<std::string>& messages, std::vector<std::string>* replies);
  // The same of a unary method with real messages.
  grpc::Status Ask(const char* service, const char* method,
                   const google::protobuf::Message& request, google::protobuf::Message* reply);

  std::string NewEmptySession();
  // Model session: kContentCanary under no label, then 8 tokens under "a". Vector session: three keys, two of them under "a".
  std::string NewModelSession();
  std::string NewVectorSession();
  // Its digest's bytes, past gRPC, which an input would else spend most of its time in; empty: there is no such session.
  std::string Digest(const std::string& session_id);
  std::vector<v1::Input> Inputs(const std::string& session_id);
  // The state is that of a fresh session of the same options that was given what this one retains (contract C1). Of a model
  // session: the model's own options.
  void CheckState(const std::string& session_id);
  // The whole file of a session under kExportKey, as the messages of an import behind its header.
  std::vector<std::string> Export(const std::string& session_id);
  // Into a new session, or in the place of `replaced`.
  v1::ImportSessionResponse ExportAndImport(const std::string& session_id,
                                            const std::string& replaced);
  // Until no ForgetSubject runs.
  void WaitForJobs();
  void DeleteSessions();
  // Ends it and starts another on the same data.
  void Restart();
  // Of this object, among all.
  int64_t number() const { return number_; }

 private:
  struct Running;
  void CheckVectorState(const v1::Session& session);

  const int64_t number_;
  const audit::TempDirectory directory_{audit::TempDirectory::Where::kMemory};
  std::unique_ptr<Running> running_;
};

// One server for many inputs, as a new one takes longer than most inputs; a new one after so many, so that none grows old.
FuzzServer& SharedServer();

}  // namespace lethe::fuzz

#endif  // LETHE_TESTS_FUZZ_FUZZ_SERVER_H_
