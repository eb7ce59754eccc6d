// Requests, VectorsTest: a server with a session of a model and a vector session of a few random rows.
//
// Threads: one at a time.
#ifndef LETHE_TESTS_INTEGRATION_VECTORS_TESTING_H_
#define LETHE_TESTS_INTEGRATION_VECTORS_TESTING_H_

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/integration/server_testing.h"

namespace lethe::testing {

inline constexpr int kKeyDim = 3;
inline constexpr int kValueDim = 2;

inline void SetNumbers(const std::vector<double>& numbers, int num_columns, v1::Matrix* matrix) {
  matrix->set_num_rows(static_cast<int>(numbers.size()) / num_columns);
  matrix->set_num_columns(num_columns);
  matrix->mutable_values()->Add(numbers.begin(), numbers.end());
}

inline std::vector<double> Normals(int count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> numbers(static_cast<size_t>(count));
  for (double& number : numbers) number = normal(random);
  return numbers;
}

// One good request of each method; a test spoils what it is about.
struct Requests {
  explicit Requests(const std::string& session_id) {
    v1::VectorOptions* options = create.mutable_options();
    options->set_key_dim(kKeyDim);
    options->set_value_dim(kValueDim);
    options->set_sigma(1.5);
    options->set_c(0.25);
    append.set_session_id(session_id);
    SetNumbers({1, 2, 3}, kKeyDim, append.mutable_keys());
    SetNumbers({4, 5}, kValueDim, append.mutable_values());
    read.set_session_id(session_id);
    SetNumbers({1, 2, 3}, kKeyDim, read.mutable_queries());
    partition.set_session_id(session_id);
    list.set_session_id(session_id);
    evict.set_session_id(session_id);
    evict.set_certified_seq(1);
  }
  v1::CreateVectorSessionRequest create;
  v1::AppendVectorsRequest append;
  v1::ReadRequest read;
  v1::PartitionRequest partition;
  v1::ListVectorsRequest list;
  v1::EvictReserveRequest evict;
};

class VectorsTest : public ServerTest {
 protected:
  static constexpr int kNumRows = 20;

  VectorsTest() : model_session_(session_id_) {
    server_.core.max_vectors = 24;
    v1::CreateVectorSessionResponse created;
    EXPECT_TRUE(Create(Requests("").create, &created).ok());
    session_id_ = created.session().session_id();
    v1::AppendVectorsRequest append = Requests(session_id_).append;
    append.clear_keys();
    append.clear_values();
    append.set_request_id("first");
    SetNumbers(Normals(kNumRows * kKeyDim, 1), kKeyDim, append.mutable_keys());
    SetNumbers(Normals(kNumRows * kValueDim, 2), kValueDim, append.mutable_values());
    v1::AppendVectorsResponse appended;
    EXPECT_TRUE(Append(append, &appended).ok());
    first_append_ = append;
  }

  grpc::Status Create(const v1::CreateVectorSessionRequest& request,
                      v1::CreateVectorSessionResponse* response) {
    Context context;
    return stubs_.memory->CreateVectorSession(&context, request, response);
  }
  grpc::Status Append(const v1::AppendVectorsRequest& request,
                      v1::AppendVectorsResponse* response) {
    Context context;
    return stubs_.memory->AppendVectors(&context, request, response);
  }
  grpc::Status Read(const v1::ReadRequest& request, v1::ReadResponse* response) {
    Context context;
    return stubs_.memory->Read(&context, request, response);
  }
  grpc::Status Evict(const v1::EvictReserveRequest& request, v1::EvictReserveResponse* response) {
    Context context;
    return stubs_.memory->EvictReserve(&context, request, response);
  }
  grpc::Status Partition(const v1::PartitionRequest& request, v1::PartitionResponse* response) {
    Context context;
    return stubs_.memory->Partition(&context, request, response);
  }
  grpc::Status List(const v1::ListVectorsRequest& request, v1::ListVectorsResponse* response) {
    Context context;
    return stubs_.memory->ListVectors(&context, request, response);
  }
  uint64_t Certify() {
    Context context;
    v1::CertifyRequest request;
    request.set_session_id(session_id_);
    v1::CertifyResponse response;
    EXPECT_TRUE(stubs_.certification->Certify(&context, request, &response).ok());
    proved_ = response.heads(0).partition_proved();
    return response.certificate().ref().seq();
  }
  v1::Session GetSession() {
    Context context;
    v1::GetSessionRequest request;
    request.set_session_id(session_id_);
    v1::GetSessionResponse response;
    EXPECT_TRUE(stubs_.session->GetSession(&context, request, &response).ok());
    return response.session();
  }

  const std::string model_session_;
  v1::AppendVectorsRequest first_append_;
  bool proved_ = false;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_INTEGRATION_VECTORS_TESTING_H_
