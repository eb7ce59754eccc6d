// Goal: MemoryService over the wire: repeats return first answers, options come back as they can be sent
// again, pages and selections follow their rules, each kind of session refuses the other's calls.
// Method: a vector session of a few random rows; digests and answers against each other.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/integration/vectors_testing.h"

namespace lethe::testing {
namespace {

using ::testing::HasSubstr;

class ServerVectorsTest : public VectorsTest {};

TEST_F(ServerVectorsTest, ARepeatedRequestHasOneEffect) {
  v1::AppendVectorsResponse again;
  ASSERT_RPC_OK(Append(first_append_, &again));
  EXPECT_EQ(again.token_ids().first(), 1u);
  EXPECT_EQ(again.token_ids().end(), kNumRows + 1u);
  EXPECT_EQ(GetSession().num_inputs(), kNumRows);
  v1::AppendVectorsRequest other = first_append_;
  other.mutable_keys()->set_values(0, 7.0);
  EXPECT_THAT(Append(other, &again),
              IsError(grpc::StatusCode::INVALID_ARGUMENT, "REQUEST_ID_REUSED", "request_id"));
  v1::CreateVectorSessionRequest create = Requests("").create;
  create.set_request_id("create");
  v1::CreateVectorSessionResponse first;
  v1::CreateVectorSessionResponse second;
  ASSERT_RPC_OK(Create(create, &first));
  ASSERT_RPC_OK(Create(create, &second));
  EXPECT_EQ(first.session().session_id(), second.session().session_id());
  // Once what it brought in was forgotten, no content is accepted under its id.
  Context context;
  v1::ForgetRequest forget;
  forget.set_session_id(session_id_);
  forget.mutable_selection()->mutable_tokens()->add_token_ids(3);
  forget.set_derived_policy(v1::DERIVED_POLICY_FAIL);
  v1::ForgetResponse receipt;
  ASSERT_RPC_OK(stubs_.forgetting->Forget(&context, forget, &receipt));
  EXPECT_THAT(Append(first_append_, &again),
              IsError(grpc::StatusCode::ALREADY_EXISTS, "REQUEST_FORGOTTEN", "request_id"));
}

TEST_F(ServerVectorsTest, OptionsInAnAnswerMakeAnEqualSession) {
  for (const double box_mass : {3.3, 409.6, 1.0, 49.0, 65536.0 / 3.0}) {
    v1::CreateVectorSessionRequest create = Requests("").create;
    create.mutable_options()->set_box_mass(box_mass);
    v1::CreateVectorSessionResponse created;
    ASSERT_RPC_OK(Create(create, &created));
    EXPECT_EQ(created.session().vector_options().box_mass(), box_mass);
    const std::string first = created.session().session_id();
    *create.mutable_options() = created.session().vector_options();
    ASSERT_RPC_OK(Create(create, &created));
    session_id_ = first;
    const std::string digest = Digest();
    session_id_ = created.session().session_id();
    EXPECT_EQ(Digest(), digest) << box_mass;
    for (const std::string& id : {first, session_id_}) {
      Context context;
      v1::DeleteSessionRequest remove;
      remove.set_session_id(id);
      v1::DeleteSessionResponse removed;
      ASSERT_RPC_OK(stubs_.session->DeleteSession(&context, remove, &removed));
    }
  }
}

TEST_F(ServerVectorsTest, AnEmptySessionHasNothingToRead) {
  v1::CreateVectorSessionResponse created;
  ASSERT_RPC_OK(Create(Requests("").create, &created));
  v1::ReadResponse response;
  const grpc::Status status = Read(Requests(created.session().session_id()).read, &response);
  EXPECT_THAT(status,
              IsError(grpc::StatusCode::FAILED_PRECONDITION, "EMPTY_SESSION", "session_id"));
  EXPECT_THAT(status.error_message(), HasSubstr("holds no keys"));
}

TEST_F(ServerVectorsTest, WideReadoutsBoundTheQueries) {
  v1::CreateVectorSessionRequest create = Requests("").create;
  create.mutable_options()->set_key_dim(1);
  create.mutable_options()->set_value_dim(65536);
  v1::CreateVectorSessionResponse created;
  ASSERT_RPC_OK(Create(create, &created));
  v1::ReadRequest read;
  read.set_session_id(created.session().session_id());
  SetNumbers(std::vector<double>(129, 1.0), 1, read.mutable_queries());
  v1::ReadResponse response;
  const grpc::Status status = Read(read, &response);
  EXPECT_THAT(status,
              IsError(grpc::StatusCode::INVALID_ARGUMENT, "INVALID_FIELD", "queries.num_rows"));
  EXPECT_THAT(status.error_message(), HasSubstr("want 1 to 128"));
  read.clear_queries();
  SetNumbers(std::vector<double>(128, 1.0), 1, read.mutable_queries());
  EXPECT_THAT(Read(read, &response),
              IsError(grpc::StatusCode::FAILED_PRECONDITION, "EMPTY_SESSION", "session_id"));
}

TEST_F(ServerVectorsTest, EachKindOfSessionRefusesTheOthersCalls) {
  const std::string digest = Digest();
  const auto wrong_kind =
      IsError(grpc::StatusCode::FAILED_PRECONDITION, "WRONG_SESSION_KIND", "session_id");
  Context append_context;
  v1::AppendRequest append;
  append.set_session_id(session_id_);
  append.mutable_input()->set_text("text");
  v1::AppendResponse appended;
  const grpc::Status status = stubs_.session->Append(&append_context, append, &appended);
  EXPECT_THAT(status, wrong_kind);
  EXPECT_EQ(status.error_message(), "session_id: this call needs a session of a model");
  for (const bool remember : {false, true}) {
    Context context;
    v1::GenerateRequest generate;
    generate.set_session_id(session_id_);
    generate.mutable_prompt()->set_text("text");
    generate.set_remember(remember);
    const auto reader = stubs_.generation->Generate(&context, generate);
    v1::GenerateResponse event;
    EXPECT_FALSE(reader->Read(&event));
    EXPECT_THAT(reader->Finish(), wrong_kind);
  }
  EXPECT_EQ(Digest(), digest);
  v1::EvictReserveResponse evicted;
  EXPECT_THAT(Evict(Requests(model_session_).evict, &evicted), wrong_kind);
}

TEST_F(ServerVectorsTest, PagesJoinToTheWholeAndEndWithAForget) {
  v1::PartitionRequest partition = Requests(session_id_).partition;
  v1::ListVectorsRequest list = Requests(session_id_).list;
  v1::PartitionResponse whole;
  ASSERT_RPC_OK(Partition(partition, &whole));
  EXPECT_EQ(whole.rows_size(), kNumRows);
  EXPECT_EQ(whole.mass(), 4.0);
  partition.set_page_size(7);
  list.set_page_size(7);
  std::vector<double> keys;
  std::vector<uint64_t> ids;
  v1::PartitionResponse rows;
  v1::ListVectorsResponse vectors;
  do {
    ASSERT_RPC_OK(Partition(partition, &rows));
    ASSERT_RPC_OK(List(list, &vectors));
    ASSERT_EQ(rows.rows_size(), vectors.rows_size());
    for (int i = 0; i < rows.rows_size(); ++i) {
      EXPECT_EQ(rows.rows(i).token_id(), vectors.rows(i).token_id());
      ids.push_back(vectors.rows(i).token_id());
      keys.insert(keys.end(), vectors.rows(i).key().begin(), vectors.rows(i).key().end());
    }
    partition.set_page_token(rows.next_page_token());
    list.set_page_token(vectors.next_page_token());
  } while (!list.page_token().empty() && ids.size() < 14);
  EXPECT_EQ(ids.size(), 14u);
  const std::vector<double> all(first_append_.keys().values().begin(),
                                first_append_.keys().values().end());
  EXPECT_EQ(keys, std::vector<double>(all.begin(), all.begin() + 14 * kKeyDim));
  Context context;
  v1::ForgetRequest forget;
  forget.set_session_id(session_id_);
  forget.mutable_selection()->mutable_tokens()->add_token_ids(20);
  forget.set_derived_policy(v1::DERIVED_POLICY_FAIL);
  v1::ForgetResponse receipt;
  ASSERT_RPC_OK(stubs_.forgetting->Forget(&context, forget, &receipt));
  EXPECT_THAT(Partition(partition, &rows),
              IsError(grpc::StatusCode::ABORTED, "HISTORY_CHANGED", "page_token"));
  EXPECT_THAT(List(list, &vectors),
              IsError(grpc::StatusCode::ABORTED, "HISTORY_CHANGED", "page_token"));
}

TEST_F(ServerVectorsTest, EvictWantsTheNewestRecordOfThePresentStateProved) {
  v1::CreateVectorSessionRequest create = Requests("").create;
  create.mutable_options()->set_selection(true);
  v1::CreateVectorSessionResponse created;
  ASSERT_RPC_OK(Create(create, &created));
  session_id_ = created.session().session_id();
  v1::AppendVectorsRequest append = first_append_;
  append.set_session_id(session_id_);
  v1::AppendVectorsResponse appended;
  ASSERT_RPC_OK(Append(append, &appended));
  v1::EvictReserveRequest evict = Requests(session_id_).evict;
  evict.set_certified_seq(Certify());
  append.set_request_id("second");
  append.clear_keys();
  append.clear_values();
  SetNumbers({9, 9, 9}, kKeyDim, append.mutable_keys());
  SetNumbers({9, 9}, kValueDim, append.mutable_values());
  ASSERT_RPC_OK(Append(append, &appended));
  v1::EvictReserveResponse evicted;
  EXPECT_THAT(Evict(evict, &evicted),
              IsError(grpc::StatusCode::FAILED_PRECONDITION, "EPOCH_PASSED", "certified_seq"));
  evict.set_certified_seq(Certify());
  evict.set_request_id("evict");
  const std::string digest = Digest();
  v1::ReadResponse before;
  ASSERT_RPC_OK(Read(Requests(session_id_).read, &before));
  const grpc::Status status = Evict(evict, &evicted);
  ASSERT_TRUE(proved_);
  ASSERT_RPC_OK(status);
  EXPECT_GT(evicted.num_evicted(), 0);
  EXPECT_EQ(evicted.num_inputs(), kNumRows + 1 - evicted.num_evicted());
  EXPECT_EQ(evicted.digest_after().sha256(), Digest());
  EXPECT_EQ(evicted.certificate().seq(), 3u);
  EXPECT_EQ(evicted.epoch(), GetSession().epoch());
  v1::ReadResponse after;
  ASSERT_RPC_OK(Read(Requests(session_id_).read, &after));
  EXPECT_EQ(after.SerializeAsString(), before.SerializeAsString());
  v1::EvictReserveResponse repeated;
  ASSERT_RPC_OK(Evict(evict, &repeated));
  EXPECT_TRUE(repeated.repeated_request());
  EXPECT_EQ(repeated.num_evicted(), evicted.num_evicted());
  EXPECT_EQ(GetSession().num_forgotten(), 0);
}

TEST_F(ServerVectorsTest, WithoutSelectionTheReserveStays) {
  v1::EvictReserveRequest evict = Requests(session_id_).evict;
  evict.set_certified_seq(Certify());
  v1::EvictReserveResponse evicted;
  const grpc::Status status = Evict(evict, &evicted);
  if (proved_) {
    EXPECT_THAT(status, IsError(grpc::StatusCode::FAILED_PRECONDITION, "SELECTION_NOT_ALLOWED",
                                "session_id"));
  } else {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  }
  EXPECT_EQ(GetSession().num_inputs(), kNumRows);
}

}  // namespace
}  // namespace lethe::testing
