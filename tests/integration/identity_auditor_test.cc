// Goal: an auditor gets what can be checked and nothing that is content, until the owner discloses a state to it by name, which
// is a record of the log, and then that state alone.
// Method: calls of two tenants' credentials against a server in this process.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/integration/identity_testing.h"

namespace lethe::testing {
namespace {

class IdentityAuditorTest : public ::testing::Test {
 protected:
  IdentityServer server_;
};

TEST_F(IdentityAuditorTest, TheWholeLogShowsItsLeavesAndATenantsEnvelopes) {
  for (const std::string& token : {std::string("a-all"), std::string("b-all")}) {
    v1::CertifyRequest certify;
    certify.set_session_id(server_.NewSession(token));
    const grpc::Status status = server_.Call("/lethe.v1.CertificationService/Certify", certify,
                                             IdentityServer::With(token));
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  v1::ListRecordsResponse ours;
  v1::ListRecordsResponse theirs;
  const std::string path = "/lethe.v1.AuditService/ListRecords";
  ASSERT_TRUE(
      server_.Call(path, v1::ListRecordsRequest(), IdentityServer::With("a-auditor"), &ours).ok());
  ASSERT_TRUE(
      server_.Call(path, v1::ListRecordsRequest(), IdentityServer::With("b-auditor"), &theirs)
          .ok());
  ASSERT_EQ(ours.records_size(), theirs.records_size());
  int num_ours = 0;
  int num_theirs = 0;
  for (int i = 0; i < ours.records_size(); ++i) {
    EXPECT_EQ(ours.records(i).leaf(), theirs.records(i).leaf());
    const bool we_see = !ours.records(i).envelope().empty();
    const bool they_see = !theirs.records(i).envelope().empty();
    if (we_see && !they_see) ++num_ours;
    if (they_see && !we_see) ++num_theirs;
  }
  EXPECT_EQ(num_ours, 1);
  EXPECT_EQ(num_theirs, 1);
}

TEST_F(IdentityAuditorTest, AnAuditorGetsACertificateWithoutWhatOpensIt) {
  v1::CertifyRequest certify;
  certify.set_session_id(server_.NewSession("a-all"));
  ASSERT_TRUE(
      server_
          .Call("/lethe.v1.CertificationService/Certify", certify, IdentityServer::With("a-user"))
          .ok());
  v1::GetCertificateRequest get;
  get.set_session_id(certify.session_id());
  const std::string path = "/lethe.v1.CertificationService/GetCertificate";
  v1::GetCertificateResponse response;
  ASSERT_TRUE(server_.Call(path, get, IdentityServer::With("a-auditor"), &response).ok());
  EXPECT_FALSE(response.certificate().envelope().empty());
  EXPECT_TRUE(response.certificate().opening().empty());
  ASSERT_TRUE(server_.Call(path, get, IdentityServer::With("a-user"), &response).ok());
  EXPECT_FALSE(response.certificate().opening().empty());
  get.set_include_bundle(true);
  EXPECT_EQ(server_.Call(path, get, IdentityServer::With("a-auditor")).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_TRUE(server_.Call(path, get, IdentityServer::With("a-user")).ok());
}

TEST_F(IdentityAuditorTest, AnAuditorSeesTheStateThatWasDisclosedToItAndNothingLater) {
  const std::string session = server_.NewSession("a-all");
  v1::AppendRequest append;
  append.set_session_id(session);
  append.mutable_input()->set_text("words");
  const std::string append_path = "/lethe.v1.SessionService/Append";
  ASSERT_TRUE(server_.Call(append_path, append, IdentityServer::With("a-user")).ok());
  v1::ListInputsRequest list;
  list.set_session_id(session);
  list.set_include_content(true);
  v1::GetStateDigestRequest digest;
  digest.set_session_id(session);
  v1::GetCertificateRequest get;
  get.set_session_id(session);
  get.set_include_bundle(true);
  v1::ListInputsResponse inputs;
  v1::GetStateDigestResponse state;
  v1::GetCertificateResponse certificate;
  // The reasons of the three calls; "" for OK.
  const auto ask = [&](const std::string& token) {
    inputs.Clear();
    const CallMetadata metadata = IdentityServer::With(token);
    std::vector<std::string> reasons;
    for (const grpc::Status& status :
         {server_.Call("/lethe.v1.SessionService/ListInputs", list, metadata, &inputs),
          server_.Call("/lethe.v1.SessionService/GetStateDigest", digest, metadata, &state),
          server_.Call("/lethe.v1.CertificationService/GetCertificate", get, metadata,
                       &certificate)}) {
      reasons.push_back(status.ok() ? "" : DetailOf(status).reason());
    }
    return reasons;
  };
  using Reasons = std::vector<std::string>;
  EXPECT_EQ(ask("a-auditor"), Reasons({"NOT_DISCLOSED", "NOT_DISCLOSED", "RECORD_NOT_FOUND"}));
  EXPECT_EQ(inputs.inputs_size(), 0);
  v1::CertifyRequest certify;
  certify.set_session_id(session);
  certify.set_disclose_to("An auditor");
  const std::string certify_path = "/lethe.v1.CertificationService/Certify";
  EXPECT_THAT(server_.Call(certify_path, certify, IdentityServer::With("a-user")),
              IsError(grpc::StatusCode::INVALID_ARGUMENT, "INVALID_FIELD", "disclose_to"));
  // To somebody else, and to nobody.
  for (const char* name : {"a-auditor-2", ""}) {
    certify.set_disclose_to(name);
    ASSERT_TRUE(server_.Call(certify_path, certify, IdentityServer::With("a-user")).ok());
    EXPECT_EQ(ask("a-auditor"), Reasons(3, "NOT_DISCLOSED"));
  }
  certify.set_disclose_to("a-auditor");
  v1::CertifyResponse certified;
  ASSERT_TRUE(server_.Call(certify_path, certify, IdentityServer::With("a-user"), &certified).ok());
  EXPECT_EQ(certified.certificate().kind(), "disclose");
  EXPECT_THAT(certified.certificate().opening(), ::testing::Not(::testing::IsEmpty()));
  EXPECT_EQ(ask("a-auditor"), Reasons(3, ""));
  EXPECT_EQ(inputs.inputs_size(), 5);
  EXPECT_EQ(inputs.inputs(0).text(), "w");
  EXPECT_EQ(state.digest().sha256(), certified.digest().sha256());
  EXPECT_FALSE(certificate.bundle().empty());
  EXPECT_EQ(certificate.certificate().opening(), certified.certificate().opening());
  EXPECT_EQ(ask("a-auditor-2"), Reasons(3, ""));
  EXPECT_EQ(ask("b-auditor"), Reasons(3, "SESSION_NOT_FOUND"));
  EXPECT_EQ(ask("a-operator"), Reasons(3, "ROLE_REQUIRED"));
  // What comes later was not disclosed.
  ASSERT_TRUE(server_.Call(append_path, append, IdentityServer::With("a-user")).ok());
  EXPECT_EQ(ask("a-auditor"), Reasons({"NOT_DISCLOSED", "NOT_DISCLOSED", "EPOCH_PASSED"}));
  EXPECT_EQ(inputs.inputs_size(), 0);
}

}  // namespace
}  // namespace lethe::testing
