// Goal: an error of the server reaches the reader with its reason, field and accepted range, and
//   malformed details do no harm.
// Method: google.rpc.Status bytes put together by hand, whole, cut at every length, and of other types.
#include "client/rpc_status.h"

#include <string>

#include "client/client.h"
#include "client/error_text.h"
#include "gmock/gmock.h"
#include "google/protobuf/any.pb.h"

#include "tests/testing/status_matchers.h"

namespace lethe::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Field(int number, const std::string& bytes) {
  return std::string(1, static_cast<char>(number << 3 | 2)) +
         std::string(1, static_cast<char>(bytes.size())) + bytes;
}

// code, message and one detail of this type.
std::string StatusBytes(const std::string& type_url) {
  v1::ErrorInfo info;
  info.set_reason("INVALID_FIELD");
  info.set_domain("lethe.dev");
  (*info.mutable_metadata())["field"] = "top_p";
  (*info.mutable_metadata())["accepted"] = "above 0, at most 1";
  google::protobuf::Any any;
  any.set_type_url(type_url);
  any.set_value(info.SerializeAsString());
  return std::string("\x08\x03") + Field(2, "top_p: want above 0, at most 1") +
         Field(3, any.SerializeAsString());
}

grpc::Status RpcError(const std::string& details) {
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "top_p: want above 0, at most 1",
                      details);
}

TEST(RpcStatusTest, OkStaysOk) { EXPECT_OK(StatusFromRpc(grpc::Status::OK)); }

TEST(RpcStatusTest, CarriesReasonAndMetadata) {
  const absl::Status status = StatusFromRpc(RpcError(StatusBytes(kErrorInfoType)));
  const CallError error = DecodeError(status);
  EXPECT_EQ(error.code, "INVALID_ARGUMENT");
  EXPECT_EQ(error.message, "top_p: want above 0, at most 1");
  EXPECT_EQ(error.reason, "INVALID_FIELD");
  EXPECT_EQ(error.metadata.at("field"), "top_p");
  const std::string text = FormatError(status, "127.0.0.1:7070");
  EXPECT_THAT(text, HasSubstr("the server refused: top_p: want above 0, at most 1"));
  EXPECT_THAT(text, HasSubstr("reason: INVALID_FIELD"));
  EXPECT_THAT(text, HasSubstr("accepted: above 0, at most 1"));
}

TEST(RpcStatusTest, SurvivesDetailsCutAnywhere) {
  const std::string whole = StatusBytes(kErrorInfoType);
  for (size_t length = 0; length < whole.size(); ++length) {
    const CallError error = DecodeError(StatusFromRpc(RpcError(whole.substr(0, length))));
    EXPECT_EQ(error.message, "top_p: want above 0, at most 1");
    EXPECT_EQ(error.reason, "") << length;
  }
}

TEST(RpcStatusTest, IgnoresDetailsOfAnotherType) {
  EXPECT_EQ(DecodeError(StatusFromRpc(RpcError(StatusBytes("type.example/other")))).reason, "");
}

TEST(RpcStatusTest, UnreachableServerIsSaidPlainly) {
  const std::string text =
      FormatError(StatusFromRpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "connection refused")),
                  "127.0.0.1:1");
  EXPECT_THAT(text, HasSubstr("no server answers at 127.0.0.1:1"));
  EXPECT_THAT(text, HasSubstr("--server"));
  EXPECT_THAT(text, Not(HasSubstr("reason:")));
  absl::Status other = StatusFromRpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "refused"));
  other.SetPayload(kServerAddressType, absl::Cord("127.0.0.1:2"));
  EXPECT_THAT(FormatError(other, "127.0.0.1:1"), HasSubstr("no server answers at 127.0.0.1:2"));
}

// Each time the server may have done it before the answer was lost.
TEST(RpcStatusTest, AnUnknownOutcomeIsRepeatedUnderItsRequestId) {
  v1::ForgetRequest request;
  request.set_request_id("r-17");
  for (const grpc::StatusCode code :
       {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::DEADLINE_EXCEEDED}) {
    const absl::Status lost = StatusFromRpc(grpc::Status(code, "Socket closed"), request);
    EXPECT_TRUE(DecodeError(lost).outcome_unknown);
    EXPECT_THAT(FormatError(lost, "127.0.0.1:7070"),
                HasSubstr("repeat the command with --request-id r-17"));
  }
  const absl::Status nameless = StatusFromRpc(
      grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed"), v1::ForgetRequest());
  EXPECT_THAT(FormatError(nameless, "127.0.0.1:7070"),
              HasSubstr("the connection to 127.0.0.1:7070 was lost before the answer came"));
  EXPECT_THAT(FormatError(nameless, "127.0.0.1:7070"), HasSubstr("look before you repeat it"));
}

TEST(RpcStatusTest, WhatWasNeverSentOrWasRefusedIsNotUnknown) {
  v1::ForgetRequest request;
  request.set_request_id("r-17");
  const grpc::Status lost(grpc::StatusCode::UNAVAILABLE, "Socket closed");
  EXPECT_TRUE(DecodeError(StatusFromRpc(lost, request)).outcome_unknown);
  // A request that changes nothing.
  EXPECT_FALSE(DecodeError(StatusFromRpc(lost, v1::GetLogRequest())).outcome_unknown);
  const grpc::Status unsent(grpc::StatusCode::UNAVAILABLE,
                            "failed to connect to all addresses; last error: refused");
  EXPECT_FALSE(DecodeError(StatusFromRpc(unsent, request)).outcome_unknown);
  const grpc::Status refused(grpc::StatusCode::UNAVAILABLE, "witness: no connection",
                             StatusBytes(kErrorInfoType));
  EXPECT_FALSE(DecodeError(StatusFromRpc(refused, request)).outcome_unknown);
}

}  // namespace
}  // namespace lethe::client
