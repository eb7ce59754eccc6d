// Goal: every bad request to MemoryService is refused with the code, reason and field of the table,
// repeats no content and changes nothing.
// Method: one table of requests against one vector session; after each the state digest and the log are
// what they were.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/integration/vectors_testing.h"

namespace lethe::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kSentinel[] = "SENTINEL-7f3a";

struct BadCase {
  std::string field;
  std::function<void(Requests*)> spoil;
  std::string accepted;  // in the message
  std::string reason = "INVALID_FIELD";
  grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
};

class ServerVectorsBadInputTest : public VectorsTest {
 protected:
  // Each case spoils one request; `call` is the one it spoils.
  void Refuse(const std::vector<BadCase>& cases,
              const std::function<grpc::Status(const Requests&)>& call) {
    const std::string digest = Digest();
    for (const BadCase& bad : cases) {
      Requests requests(session_id_);
      bad.spoil(&requests);
      const grpc::Status status = call(requests);
      EXPECT_THAT(status, IsError(bad.code, bad.reason, bad.field)) << bad.accepted;
      EXPECT_THAT(status.error_message(), HasSubstr(bad.accepted));
      EXPECT_EQ(status.error_message().find("SENTINEL"), std::string::npos);
      EXPECT_EQ(Digest(), digest) << bad.field;
    }
    EXPECT_EQ(server_.trail.data->log()->num_leaves(), 0u);
    EXPECT_EQ(server_.core.sessions.num_sessions(), 2);
  }
};

TEST_F(ServerVectorsBadInputTest, CreateFields) {
  using R = Requests*;
  const double nan = std::nan("");
  const auto options = [](R r) { return r->create.mutable_options(); };
  Refuse(
      {
          {"options.key_dim", [=](R r) { options(r)->set_key_dim(0); }, "want 1 to 65536"},
          {"options.key_dim", [=](R r) { options(r)->set_key_dim(65537); }, "want 1 to 65536"},
          {"options.value_dim", [=](R r) { options(r)->set_value_dim(-1); }, "want 0 to 65536"},
          {"options.sigma", [=](R r) { options(r)->set_sigma(0); }, "to 1048576"},
          {"options.sigma", [=](R r) { options(r)->set_sigma(-1); }, "to 1048576"},
          {"options.sigma", [=](R r) { options(r)->set_sigma(nan); }, "to 1048576"},
          {"options.sigma", [=](R r) { options(r)->set_sigma(HUGE_VAL); }, "to 1048576"},
          {"options.c", [=](R r) { options(r)->set_c(0); }, "to 1"},
          {"options.c", [=](R r) { options(r)->set_c(-0.5); }, "to 1"},
          {"options.c", [=](R r) { options(r)->set_c(1.5); }, "to 1"},
          {"options.c", [=](R r) { options(r)->set_c(nan); }, "to 1"},
          {"options.box_mass", [=](R r) { options(r)->set_box_mass(0.5); }, "want 1 to 65536"},
          {"options.box_mass", [=](R r) { options(r)->set_box_mass(65537); }, "want 1 to 65536"},
          {"options.box", [=](R r) { options(r)->clear_box(); }, "one of c, nu and box_mass"},
          {"options.nu.nu",
           [=](R r) {
             options(r)->mutable_nu()->set_nu(0);
             options(r)->mutable_nu()->set_reference_size(10);
           },
           "above 0, at most 1"},
          {"options.nu.nu", [=](R r) { options(r)->mutable_nu()->set_nu(nan); }, "above 0"},
          {"options.nu.reference_size",
           [=](R r) {
             options(r)->mutable_nu()->set_nu(0.1);
             options(r)->mutable_nu()->set_reference_size(9);
           },
           "nu reference_size is 1 to 65536"},
          {"options.nu.reference_size",
           [=](R r) {
             options(r)->mutable_nu()->set_nu(1);
             options(r)->mutable_nu()->set_reference_size(INT64_MIN);
           },
           "nu reference_size is 1 to 65536"},
          {"options.ridge", [=](R r) { options(r)->set_ridge(0); }, "want 1e-08 to 1"},
          {"options.ridge", [=](R r) { options(r)->set_ridge(1.5); }, "want 1e-08 to 1"},
          {"options.ridge", [=](R r) { options(r)->set_ridge(nan); }, "want 1e-08 to 1"},
          {"display_name", [](R r) { r->create.set_display_name(std::string(129, 'd')); },
           "at most 128 bytes"},
          {"request_id", [](R r) { r->create.set_request_id("a b"); }, "visible ASCII"},
      },
      [&](const Requests& requests) {
        v1::CreateVectorSessionResponse response;
        return Create(requests.create, &response);
      });
}

TEST_F(ServerVectorsBadInputTest, AppendFields) {
  using R = Requests*;
  const double nan = std::nan("");
  const auto key = [](double value) {
    return [value](R r) { r->append.mutable_keys()->set_values(1, value); };
  };
  const char finite[] = "finite numbers of at most 2^400";
  Refuse(
      {
          {"session_id", [](R r) { r->append.set_session_id("unknown"); }, "no such session",
           "SESSION_NOT_FOUND", grpc::StatusCode::NOT_FOUND},
          {"session_id", [&](R r) { r->append.set_session_id(model_session_); },
           "needs a vector session", "WRONG_SESSION_KIND", grpc::StatusCode::FAILED_PRECONDITION},
          {"keys.num_columns", [](R r) { r->append.clear_keys(); }, "want 3"},
          {"keys.num_columns", [](R r) { r->append.mutable_keys()->set_num_columns(2); }, "want 3"},
          {"keys.num_rows", [](R r) { r->append.mutable_keys()->set_num_rows(0); }, "1 to 65536"},
          {"keys.num_rows", [](R r) { r->append.mutable_keys()->set_num_rows(-1); }, "1 to 65536"},
          {"keys.values", [](R r) { r->append.mutable_keys()->add_values(1); }, "num_rows x"},
          {"keys.values", key(nan), finite},
          {"keys.values", key(HUGE_VAL), finite},
          {"keys.values", key(-HUGE_VAL), finite},
          {"keys.values", key(0x1.01p400), finite},
          {"values.values", [&](R r) { r->append.mutable_values()->set_values(0, nan); }, finite},
          {"values.num_columns", [](R r) { r->append.clear_values(); }, "want 2"},
          {"values.num_columns", [](R r) { r->append.mutable_values()->set_num_columns(1); },
           "want 2"},
          {"values.num_rows",
           [](R r) {
             r->append.clear_values();
             SetNumbers({1, 2, 3, 4}, kValueDim, r->append.mutable_values());
           },
           "want 1 to 1"},
          {"keys",
           [](R r) {
             r->append.clear_keys();
             r->append.clear_values();
             SetNumbers(Normals(5 * kKeyDim, 3), kKeyDim, r->append.mutable_keys());
             SetNumbers(Normals(5 * kValueDim, 3), kValueDim, r->append.mutable_values());
           },
           "keys: got 5 rows, the session can take 4 more (limit 24)", "TOO_MANY_VECTORS",
           grpc::StatusCode::RESOURCE_EXHAUSTED},
          {"subject", [](R r) { r->append.set_subject(kSentinel + std::string(128, 's')); },
           "at most 128 bytes"},
          {"request_id", [](R r) { r->append.set_request_id(std::string(65, 'r')); }, "at most 64"},
          {"request_id", [](R r) { r->append.set_request_id("first"); }, "request_id",
           "REQUEST_ID_REUSED"},
      },
      [&](const Requests& requests) {
        v1::AppendVectorsResponse response;
        return Append(requests.append, &response);
      });
}

TEST_F(ServerVectorsBadInputTest, ReadFields) {
  using R = Requests*;
  Refuse(
      {
          {"session_id", [&](R r) { r->read.set_session_id(model_session_); },
           "needs a vector session", "WRONG_SESSION_KIND", grpc::StatusCode::FAILED_PRECONDITION},
          {"queries.num_columns", [](R r) { r->read.clear_queries(); }, "want 3"},
          {"queries.num_rows", [](R r) { r->read.mutable_queries()->set_num_rows(65537); },
           "1 to 65536"},
          {"queries.values", [](R r) { r->read.mutable_queries()->set_num_rows(2); }, "num_rows x"},
          {"queries.values", [](R r) { r->read.mutable_queries()->set_values(0, std::nan("")); },
           "finite numbers"},
      },
      [&](const Requests& requests) {
        v1::ReadResponse response;
        return Read(requests.read, &response);
      });
}

TEST_F(ServerVectorsBadInputTest, PageAndEvictFields) {
  using R = Requests*;
  Refuse({{"page_size", [](R r) { r->partition.set_page_size(-1); }, "page_size"},
          {"page_token", [](R r) { r->partition.set_page_token("x"); }, "page_token"}},
         [&](const Requests& requests) {
           v1::PartitionResponse response;
           return Partition(requests.partition, &response);
         });
  Refuse({{"page_size", [](R r) { r->list.set_page_size(-1); }, "page_size"},
          {"page_token", [](R r) { r->list.set_page_token("x"); }, "page_token"},
          {"session_id", [&](R r) { r->list.set_session_id(model_session_); },
           "needs a vector session", "WRONG_SESSION_KIND", grpc::StatusCode::FAILED_PRECONDITION}},
         [&](const Requests& requests) {
           v1::ListVectorsResponse response;
           return List(requests.list, &response);
         });
  Refuse({{"nonce", [](R r) { r->evict.set_nonce("short"); }, "16 to 32 bytes"},
          {"request_id", [](R r) { r->evict.set_request_id("\n"); }, "visible ASCII"},
          {"session_id", [](R r) { r->evict.set_certified_seq(7); }, "created without selection",
           "SELECTION_NOT_ALLOWED", grpc::StatusCode::FAILED_PRECONDITION}},
         [&](const Requests& requests) {
           v1::EvictReserveResponse response;
           return Evict(requests.evict, &response);
         });
}

}  // namespace
}  // namespace lethe::testing
