#include "client/commands/certify_call.h"

#include "absl/strings/str_cat.h"
#include "client/commands/certificate_files.h"
#include "client/commands/progress.h"
#include "client/commands/proto_json.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

// The certified digest with its parts, or "" when the session has moved on meanwhile.
absl::StatusOr<std::string> DigestParts(Client& client, const std::string& session_id,
                                        const v1::StateDigest& certified) {
  v1::GetStateDigestRequest request;
  request.set_session_id(session_id);
  request.set_include_parts(true);
  LETHE_ASSIGN_OR_RETURN(const v1::GetStateDigestResponse response, client.GetStateDigest(request));
  return response.digest().sha256() == certified.sha256()
             ? absl::StrCat(MessageToJson(response.digest()).dump(), "\n")
             : "";
}

}  // namespace

absl::StatusOr<CertifiedState> CertifyInto(Context& context, const v1::CertifyRequest& request,
                                           const std::string& directory) {
  if (request.request_id().empty()) {
    LETHE_RETURN_IF_ERROR(PrepareDirectory(directory));
  }
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  CertifiedState state;
  {
    const Progress progress(context.io(), "certifying");
    LETHE_ASSIGN_OR_RETURN(state.response, client->Certify(request));
  }
  CertificateContent content{
      .certificate = state.response.certificate(), .bundle = state.response.bundle(), .digest = ""};
  LETHE_ASSIGN_OR_RETURN(content.digest,
                         DigestParts(*client, request.session_id(), state.response.digest()));
  LETHE_ASSIGN_OR_RETURN(state.files, WriteCertificate(directory, content));
  return state;
}

}  // namespace lethe::client
