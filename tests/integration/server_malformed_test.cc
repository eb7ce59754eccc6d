// Goal: a request that protobuf cannot parse is the caller's fault and says so: INVALID_ARGUMENT with
// the field's name for text that is not UTF-8; nothing on standard error; content may be any bytes.
// Method: this library serialises invalid UTF-8 all the same, as other languages' do; bytes that are
// no message go through a generic stub.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/integration/server_testing.h"

namespace lethe::testing {
namespace {

constexpr char kNotUtf8[] = "SENTINEL-\xff\xc3";
constexpr grpc::StatusCode kInvalid = grpc::StatusCode::INVALID_ARGUMENT;

class ServerMalformedTest : public ServerTest {
 protected:
  grpc::Status Append(const v1::AppendRequest& request) {
    Context context;
    v1::AppendResponse response;
    return stubs_.session->Append(&context, request, &response);
  }
  v1::AppendRequest GoodAppend() const {
    v1::AppendRequest request;
    request.set_session_id(session_id_);
    request.mutable_input()->set_text("hello");
    return request;
  }
};

TEST_F(ServerMalformedTest, TextThatIsNotUtf8IsRefusedByItsField) {
  ::testing::internal::CaptureStderr();
  v1::AppendRequest append = GoodAppend();
  append.set_subject(kNotUtf8);
  const grpc::Status status = Append(append);
  EXPECT_THAT(status, IsError(kInvalid, "INVALID_FIELD", "subject"));
  EXPECT_EQ(status.error_message(), "subject: want valid UTF-8");
  append = GoodAppend();
  append.set_request_id(kNotUtf8);
  EXPECT_THAT(Append(append), IsError(kInvalid, "INVALID_FIELD", "request_id"));
  append = GoodAppend();
  append.set_session_id(kNotUtf8);
  EXPECT_THAT(Append(append), IsError(kInvalid, "INVALID_FIELD", "session_id"));

  Context create_context;
  v1::CreateSessionRequest create;
  create.set_display_name(kNotUtf8);
  v1::CreateSessionResponse created;
  EXPECT_THAT(stubs_.session->CreateSession(&create_context, create, &created),
              IsError(kInvalid, "INVALID_FIELD", "display_name"));
  Context forget_context;
  v1::ForgetRequest forget;
  forget.set_session_id(session_id_);
  forget.mutable_selection()->set_subject(kNotUtf8);
  v1::ForgetResponse receipt;
  EXPECT_THAT(stubs_.forgetting->Forget(&forget_context, forget, &receipt),
              IsError(kInvalid, "INVALID_FIELD", "selection.subject"));
  Context stream_context;
  v1::GenerateRequest generate;
  generate.set_session_id(session_id_);
  generate.set_subject(kNotUtf8);
  const auto reader = stubs_.generation->Generate(&stream_context, generate);
  v1::GenerateResponse event;
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_THAT(reader->Finish(), IsError(kInvalid, "INVALID_FIELD", "subject"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(ServerMalformedTest, BytesThatAreNoMessageAreRefused) {
  ::testing::internal::CaptureStderr();
  for (const std::string& bytes : {std::string("\xff\xff\xff"), std::string("\x0a\x7f"),
                                   std::string("\x0a\x05"
                                               "ab")}) {
    std::string reply;
    EXPECT_THAT(CallRaw("/lethe.v1.SessionService/Append", bytes, &reply),
                IsError(kInvalid, "MALFORMED_REQUEST", ""));
    // Not the field of the call before on the same thread.
    v1::AppendRequest append = GoodAppend();
    append.set_subject(kNotUtf8);
    EXPECT_THAT(Append(append), IsError(kInvalid, "INVALID_FIELD", "subject"));
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ASSERT_RPC_OK(Append(GoodAppend()));
}

TEST_F(ServerMalformedTest, ContentMayBeAnyBytes) {
  v1::AppendRequest append = GoodAppend();
  append.mutable_input()->set_text(kNotUtf8);
  ASSERT_RPC_OK(Append(append));
  Context context;
  v1::ListInputsRequest list;
  list.set_session_id(session_id_);
  list.set_include_content(true);
  v1::ListInputsResponse inputs;
  ASSERT_RPC_OK(stubs_.session->ListInputs(&context, list, &inputs));
  std::string text;
  for (const v1::Input& input : inputs.inputs()) text += input.text();
  EXPECT_EQ(text, kNotUtf8);
  Context stream_context;
  v1::GenerateRequest generate;
  generate.set_session_id(session_id_);
  generate.mutable_prompt()->set_text(kNotUtf8);
  generate.mutable_output()->add_stop("\xff");
  generate.mutable_output()->set_max_tokens(2);
  const auto reader = stubs_.generation->Generate(&stream_context, generate);
  v1::GenerateResponse event;
  while (reader->Read(&event)) {
  }
  ASSERT_RPC_OK(reader->Finish());
}

}  // namespace
}  // namespace lethe::testing
