// Client: one connection to a lethe-server, every RPC of lethe.v1 as a plain call with a deadline.
//
//   ASSIGN_OR_RETURN(auto client, Client::Connect({.address = "127.0.0.1:7070"}));
//   auto session = client->CreateSession(v1::CreateSessionRequest());
//
// Equation:  none.
// Shapes:    none.
// Units:     timeouts in seconds.
// Requires:  none.
// Rejects:   Connect: INVALID_ARGUMENT for an empty address or a timeout that is not positive, and as MakeChannel (channel.h). Every
//            call: the server's status code and message, its ErrorInfo as the payload kErrorInfoType
//            (error_text.h reads it) and the mark kRpcStatusType; UNAVAILABLE when no server answers,
//            DEADLINE_EXCEEDED; the payload kOutcomeUnknownType where such a call may have taken effect.
//            Before any call and without the mark: INVALID_ARGUMENT for a text
//            field that is not UTF-8 (message_check.h).
// Effects:   Connect opens no socket; the first call does. Nothing is retried: a mutation is repeated
//            safely by its caller with the same request_id.
// Numerics:  none.
// Threads:   safe; calls block. Callbacks run on the calling thread.
#ifndef LETHE_CLIENT_CLIENT_H_
#define LETHE_CLIENT_CLIENT_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "lethe/v1/audit.pb.h"
#include "lethe/v1/certification.pb.h"
#include "lethe/v1/forgetting.pb.h"
#include "lethe/v1/generation.pb.h"
#include "lethe/v1/memory.pb.h"
#include "lethe/v1/model.pb.h"
#include "lethe/v1/session.pb.h"

namespace lethe::client {

// Payload type URL under which a status holds the serialised v1::ErrorInfo.
inline constexpr char kErrorInfoType[] = "type.googleapis.com/google.rpc.ErrorInfo";
// Payload (empty) of every status that a call returned, as against errors found before it.
inline constexpr char kRpcStatusType[] = "type.lethe.dev/rpc";
// Payload of a status that another server than --server's returned: its address.
inline constexpr char kServerAddressType[] = "type.lethe.dev/server-address";

// Payload of a call that may have changed something though its answer did not come: the request_id, perhaps empty, that it
// was sent with. A repeat with the same one is done at most once.
inline constexpr char kOutcomeUnknownType[] = "type.lethe.dev/outcome-unknown";

struct ConnectOptions {
  std::string address;     // host:port
  double timeout_s = 600;  // deadline of every call
  // PEM texts. With tls_ca the connection is TLS, to a server whose certificate is of that CA and for the address's host.
  std::string tls_ca{};
  std::string tls_certificate{};
  std::string tls_key{};
  std::string token{};  // sent with every call: over TLS, or to this machine
};

class Client {
 public:
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ConnectOptions& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  absl::StatusOr<v1::CreateSessionResponse> CreateSession(const v1::CreateSessionRequest& request);
  absl::StatusOr<v1::GetSessionResponse> GetSession(const v1::GetSessionRequest& request);
  absl::StatusOr<v1::ListSessionsResponse> ListSessions(const v1::ListSessionsRequest& request);
  absl::StatusOr<v1::DeleteSessionResponse> DeleteSession(const v1::DeleteSessionRequest& request);
  absl::StatusOr<v1::AppendResponse> Append(const v1::AppendRequest& request);
  absl::StatusOr<v1::ListInputsResponse> ListInputs(const v1::ListInputsRequest& request);
  absl::StatusOr<v1::GetStateDigestResponse> GetStateDigest(
      const v1::GetStateDigestRequest& request);

  // Calls on_event for each message in order. When on_event returns false the call is cancelled and
  // CANCELLED is returned; the session keeps exactly the tokens that were sent.
  absl::Status Generate(const v1::GenerateRequest& request,
                        absl::FunctionRef<bool(const v1::GenerateResponse&)> on_event);

  // Calls on_data for each piece of the file in order; its error cancels the call and is returned.
  absl::Status ExportSession(const v1::ExportSessionRequest& request,
                             absl::FunctionRef<absl::Status(const std::string&)> on_data);
  // Sends what next_piece gives until that is empty; its error cancels the call and is returned.
  absl::StatusOr<v1::ImportSessionResponse> ImportSession(
      const v1::ImportHeader& header, absl::FunctionRef<absl::StatusOr<std::string>()> next_piece);

  absl::StatusOr<v1::ForgetResponse> Forget(const v1::ForgetRequest& request);
  absl::StatusOr<v1::ForgetSubjectResponse> ForgetSubject(const v1::ForgetSubjectRequest& request);
  absl::StatusOr<v1::GetSubjectJobResponse> GetSubjectJob(const v1::GetSubjectJobRequest& request);
  // Calls on_event for each message in order, until the job is done.
  absl::Status WatchSubjectJob(
      const v1::WatchSubjectJobRequest& request,
      absl::FunctionRef<void(const v1::WatchSubjectJobResponse&)> on_event);
  absl::StatusOr<v1::ListSubjectJobsResponse> ListSubjectJobs(
      const v1::ListSubjectJobsRequest& request);
  absl::StatusOr<v1::ListSubjectOutcomesResponse> ListSubjectOutcomes(
      const v1::ListSubjectOutcomesRequest& request);
  absl::StatusOr<v1::DeleteSubjectJobResponse> DeleteSubjectJob(
      const v1::DeleteSubjectJobRequest& request);

  absl::StatusOr<v1::CertifyResponse> Certify(const v1::CertifyRequest& request);
  absl::StatusOr<v1::ListPartitionResponse> ListPartition(const v1::ListPartitionRequest& request);
  absl::StatusOr<v1::GetCertificateResponse> GetCertificate(
      const v1::GetCertificateRequest& request);

  absl::StatusOr<v1::GetLogResponse> GetLog(const v1::GetLogRequest& request);
  absl::StatusOr<v1::ListRecordsResponse> ListRecords(const v1::ListRecordsRequest& request);
  absl::StatusOr<v1::GetInclusionProofResponse> GetInclusionProof(
      const v1::GetInclusionProofRequest& request);
  absl::StatusOr<v1::GetConsistencyProofResponse> GetConsistencyProof(
      const v1::GetConsistencyProofRequest& request);

  absl::StatusOr<v1::CreateVectorSessionResponse> CreateVectorSession(
      const v1::CreateVectorSessionRequest& request);
  absl::StatusOr<v1::AppendVectorsResponse> AppendVectors(const v1::AppendVectorsRequest& request);
  absl::StatusOr<v1::ReadResponse> Read(const v1::ReadRequest& request);
  absl::StatusOr<v1::PartitionResponse> Partition(const v1::PartitionRequest& request);
  absl::StatusOr<v1::ListVectorsResponse> ListVectors(const v1::ListVectorsRequest& request);
  absl::StatusOr<v1::EvictReserveResponse> EvictReserve(const v1::EvictReserveRequest& request);

  absl::StatusOr<v1::ListModelsResponse> ListModels(const v1::ListModelsRequest& request);
  absl::StatusOr<v1::GetModelResponse> GetModel(const v1::GetModelRequest& request);
  absl::StatusOr<v1::TokenizeResponse> Tokenize(const v1::TokenizeRequest& request);
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(const v1::DetokenizeRequest& request);

 private:
  struct Stubs;
  Client(std::unique_ptr<Stubs> stubs, ConnectOptions options);

  std::unique_ptr<Stubs> stubs_;
  ConnectOptions options_;
};

}  // namespace lethe::client

#endif  // LETHE_CLIENT_CLIENT_H_
