// Goal (promise A8): every RPC × {no, wrong, malformed, expired, revoked credential; wrong role; another tenant's session, job
// and request}: the same status, message and details, and with the last nothing that tells it from what does not exist.
// Method: all methods of all services by their descriptors against a server in this process; a credential is looked at on
// every call, so one connection carries all of them. With LETHE_TEST_LONG=1 also the time of the answer, foreign against
// missing, in shuffled pairs under Welch's t-test.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>

#include "server/identity/method_access.h"
#include "server/rpc/grpc_call.h"
#include "tests/integration/identity_testing.h"
#include "tests/testing/long_run.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::google::protobuf::Message;
using ::google::protobuf::MethodDescriptor;
using ::google::protobuf::Reflection;

std::vector<const MethodDescriptor*> AllMethods() {
  std::vector<const MethodDescriptor*> methods;
  for (const google::protobuf::FileDescriptor* file :
       {v1::CreateSessionRequest::descriptor()->file(), v1::GenerateRequest::descriptor()->file(),
        v1::ForgetRequest::descriptor()->file(), v1::CertifyRequest::descriptor()->file(),
        v1::GetLogRequest::descriptor()->file(), v1::ReadRequest::descriptor()->file(),
        v1::GetModelRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        methods.push_back(file->service(i)->method(j));
      }
    }
  }
  return methods;
}

std::string PathOf(const MethodDescriptor& method) {
  return absl::StrCat("/", method.service()->full_name(), "/", method.name());
}

std::string Text(const grpc::Status& status) {
  return absl::StrCat(status.error_code(), " ", status.error_message(), " ",
                      DetailOf(status).ShortDebugString());
}

std::unique_ptr<Message> NewRequest(const MethodDescriptor& method) {
  return std::unique_ptr<Message>(google::protobuf::MessageFactory::generated_factory()
                                      ->GetPrototype(method.input_type())
                                      ->New());
}

// A request about this session or job, which is all that is wrong with it; null: the method names none.
std::unique_ptr<Message> RequestAbout(const MethodDescriptor& method, const std::string& id) {
  std::unique_ptr<Message> request = NewRequest(method);
  if (auto* import = dynamic_cast<v1::ImportSessionRequest*>(request.get())) {
    import->mutable_header()->set_session_id(id);
    import->mutable_header()->set_replace(true);
    import->mutable_header()->set_key(std::string(32, 'k'));
    return request;
  }
  for (const char* name : {"session_id", "job_id"}) {
    const google::protobuf::FieldDescriptor* field =
        request->GetDescriptor()->FindFieldByName(name);
    if (field == nullptr) continue;
    request->GetReflection()->SetString(request.get(), field, id);
    return request;
  }
  return nullptr;
}

class IdentityMatrixTest : public ::testing::Test {
 protected:
  // The id of a job of b's that is done.
  std::string JobOfB() {
    v1::ForgetSubjectRequest request;
    request.set_subject("patient-17");
    request.set_derived_policy(v1::DERIVED_POLICY_FAIL);
    request.set_request_id("job-1");
    v1::ForgetSubjectResponse response;
    const grpc::Status status = server_.Call("/lethe.v1.ForgettingService/ForgetSubject", request,
                                             IdentityServer::With("b-all"), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job().job_id();
  }

  IdentityServer server_;
  const std::string missing_ = std::string(26, 'a');
};

TEST_F(IdentityMatrixTest, TheTableHasEveryMethodAndNoOther) {
  std::set<std::string> names;
  for (const MethodDescriptor* method : AllMethods()) {
    EXPECT_TRUE(names.insert(method->name()).second) << method->full_name() << " is not alone";
    EXPECT_NE(RolesFor(method->name()), 0) << method->full_name();
  }
  EXPECT_GE(names.size(), 34u);
  for (const MethodAccess& access : AllMethodAccess()) {
    EXPECT_EQ(names.count(std::string(access.method)), 1u) << access.method;
  }
}

TEST_F(IdentityMatrixTest, WithoutAValidCredentialEveryCallIsRefusedInTheSameWords) {
  const std::string session = server_.NewSession("a-all");
  const std::map<std::string, CallMetadata> credentials = {
      {"no", {}},
      {"wrong", IdentityServer::With("a-nobody")},
      {"expired", IdentityServer::With("a-old")},
      {"revoked", IdentityServer::With("a-revoked")},
      {"another scheme", {{"authorization", "Basic a-all"}}},
      {"two", {{"authorization", "Bearer a-all"}, {"authorization", "Bearer a-all"}}},
      {"a certificate's name", {{"x-lethe-client-cert-sha256", std::string(64, '0')}}}};
  std::set<std::string> texts;
  for (const MethodDescriptor* method : AllMethods()) {
    std::unique_ptr<Message> about = RequestAbout(*method, session);
    if (about == nullptr) about = NewRequest(*method);
    for (const auto& [name, metadata] : credentials) {
      const grpc::Status status = server_.Call(PathOf(*method), *about, metadata);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED)
          << method->name() << ", " << name << ": " << Text(status);
      texts.insert(Text(status));
      // What one call proved says nothing about the next one on its connection.
      if (name != "no") continue;
      EXPECT_NE(server_.Call(PathOf(*method), *NewRequest(*method), IdentityServer::With("b-all"))
                    .error_code(),
                grpc::StatusCode::UNAUTHENTICATED);
    }
  }
  // What does not parse, too: field 1 as a message that ends too early.
  const std::string malformed = "\x0a\x7f";
  EXPECT_EQ(server_
                .CallBytes("/lethe.v1.SessionService/GetSession", malformed,
                           IdentityServer::With("a-user"))
                .error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  texts.insert(Text(server_.CallBytes("/lethe.v1.SessionService/GetSession", malformed, {})));
  EXPECT_EQ(texts.size(), 1u) << ::testing::PrintToString(texts);
}

TEST_F(IdentityMatrixTest, WithTheWrongRoleARefusalSaysNothingAboutWhatExists) {
  const std::string own = server_.NewSession("a-all");
  const std::string foreign = server_.NewSession("b-all");
  int num_refused = 0;
  for (const MethodDescriptor* method : AllMethods()) {
    for (const NamedRole& role : kNamedRoles) {
      const bool may = (RolesFor(method->name()) & static_cast<uint8_t>(role.role)) != 0;
      const CallMetadata metadata = IdentityServer::With(absl::StrCat("a-", role.name));
      std::set<std::string> texts;
      for (const std::string& id : {own, foreign, missing_}) {
        std::unique_ptr<Message> request = RequestAbout(*method, id);
        if (request == nullptr) request = NewRequest(*method);
        if (may) continue;
        const grpc::Status status = server_.Call(PathOf(*method), *request, metadata);
        EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED)
            << method->name() << " as " << role.name << ": " << Text(status);
        EXPECT_EQ(DetailOf(status).reason(), "ROLE_REQUIRED");
        texts.insert(Text(status));
      }
      if (may) {
        EXPECT_NE(server_.Call(PathOf(*method), *NewRequest(*method), metadata).error_code(),
                  grpc::StatusCode::PERMISSION_DENIED)
            << method->name() << " as " << role.name;
        continue;
      }
      ++num_refused;
      EXPECT_EQ(texts.size(), 1u) << method->name() << " " << ::testing::PrintToString(texts);
    }
  }
  EXPECT_GT(num_refused, 60);
}

TEST_F(IdentityMatrixTest, WhatIsAnothersIsAsWhatDoesNotExist) {
  const std::string own = server_.NewSession("a-all");
  const std::string foreign = server_.NewSession("b-all");
  const std::string foreign_job = JobOfB();
  const CallMetadata metadata = IdentityServer::With("a-all");
  int num_methods = 0;
  for (const MethodDescriptor* method : AllMethods()) {
    if (RequestAbout(*method, own) == nullptr) continue;
    ++num_methods;
    const bool is_job = method->input_type()->FindFieldByName("job_id") != nullptr;
    const std::string path = PathOf(*method);
    const grpc::Status of_foreign =
        server_.Call(path, *RequestAbout(*method, is_job ? foreign_job : foreign), metadata);
    const grpc::Status of_missing = server_.Call(path, *RequestAbout(*method, missing_), metadata);
    EXPECT_EQ(of_foreign.error_code(), grpc::StatusCode::NOT_FOUND)
        << path << ": " << Text(of_foreign);
    EXPECT_EQ(Text(of_foreign), Text(of_missing)) << path;
  }
  EXPECT_GE(num_methods, 22);
  // The same calls are found by whose they are, so the matrix can fail.
  for (const MethodDescriptor* method : AllMethods()) {
    if (RequestAbout(*method, own) == nullptr || method->name() == "DeleteSession" ||
        method->input_type()->FindFieldByName("job_id") != nullptr) {
      continue;
    }
    EXPECT_NE(server_.Call(PathOf(*method), *RequestAbout(*method, own), metadata).error_code(),
              grpc::StatusCode::NOT_FOUND)
        << method->name();
  }
}

TEST_F(IdentityMatrixTest, ListsShowATenantItsOwn) {
  const std::string own = server_.NewSession("a-all");
  const std::string foreign = server_.NewSession("b-all");
  const std::string foreign_job = JobOfB();
  v1::ListSessionsResponse sessions;
  ASSERT_TRUE(server_
                  .Call("/lethe.v1.SessionService/ListSessions", v1::ListSessionsRequest(),
                        IdentityServer::With("a-auditor"), &sessions)
                  .ok());
  ASSERT_EQ(sessions.sessions_size(), 1);
  EXPECT_EQ(sessions.sessions(0).session_id(), own);
  v1::ListSubjectJobsResponse jobs;
  ASSERT_TRUE(server_
                  .Call("/lethe.v1.ForgettingService/ListSubjectJobs", v1::ListSubjectJobsRequest(),
                        IdentityServer::With("a-eraser"), &jobs)
                  .ok());
  EXPECT_EQ(jobs.jobs_size(), 0);
  // A page's token is no way around: it is only a place.
  v1::ListSessionsRequest behind;
  behind.set_page_token(std::string(26, '2'));
  sessions.Clear();
  ASSERT_TRUE(server_
                  .Call("/lethe.v1.SessionService/ListSessions", behind,
                        IdentityServer::With("b-user"), &sessions)
                  .ok());
  ASSERT_EQ(sessions.sessions_size(), 1);
  EXPECT_EQ(sessions.sessions(0).session_id(), foreign);
}

TEST_F(IdentityMatrixTest, AForgetOfOneTenantKeepsNobodyElseFromTheLabel) {
  const std::string own = server_.NewSession("a-all");
  JobOfB();
  v1::AppendRequest append;
  append.set_session_id(own);
  append.set_subject("patient-17");
  append.mutable_input()->set_text("words");
  const grpc::Status status =
      server_.Call("/lethe.v1.SessionService/Append", append, IdentityServer::With("a-user"));
  EXPECT_TRUE(status.ok()) << Text(status);
}

struct Sample {
  double sum = 0;
  double sum_of_squares = 0;
  double count = 0;
  void Add(double value) {
    sum += value;
    sum_of_squares += value * value;
    ++count;
  }
  double Mean() const { return sum / count; }
  double VarianceOfMean() const {
    return (sum_of_squares - sum * sum / count) / (count - 1) / count;
  }
};

// A token that leaked is taken away while its stream runs.
TEST_F(IdentityMatrixTest, ARunningStreamEndsWhenItsCredentialIsRevoked) {
  ServerCore& core = server_.core;
  core.identity_interval = std::chrono::milliseconds(0);
  v1::GenerateRequest request;
  request.set_session_id(server_.NewSession("a-all"));
  request.mutable_prompt()->set_text("q");
  request.mutable_output()->set_ignore_end_of_text(true);
  Context context;
  context.AddMetadata("authorization", "Bearer a-all");
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
  {
    // Nobody computes while the test holds both slots: the stream was admitted and waits.
    struct NeverGone final : Call {
      absl::Status Check() const override { return absl::OkStatus(); }
    } held;
    ASSERT_OK_AND_ASSIGN(const ComputeSlot first, core.scheduler.Acquire(held));
    ASSERT_OK_AND_ASSIGN(const ComputeSlot second, core.scheduler.Acquire(held));
    reader = server_.stubs->generation->Generate(&context, request);
    while (core.scheduler.num_waiting() == 0) absl::SleepFor(absl::Milliseconds(1));
    std::string others = server_.all_tokens;
    const std::string line = TokenLine("a-all", "a", "user,eraser,auditor,operator");
    others.erase(others.find(line), line.size());
    ReplaceFile(server_.tokens_path, others);
    absl::SleepFor(absl::FromChrono(2 * GrpcCall::kLookInterval));
  }
  v1::GenerateResponse event;
  while (reader->Read(&event)) {
    EXPECT_EQ(event.delta().tokens_size(), 0);
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
  // The session is as a lost client leaves it: there, for the tenant's other credentials.
  v1::GetSessionRequest get;
  get.set_session_id(request.session_id());
  EXPECT_TRUE(
      server_.Call("/lethe.v1.SessionService/GetSession", get, IdentityServer::With("a-user"))
          .ok());
}

TEST_F(IdentityMatrixTest, TheTimeOfAnAnswerDoesNotTellAForeignSessionFromNone) {
  if (!IsLongTest()) GTEST_SKIP() << "times need a machine of their own: tests/run --long";
  for (int i = 0; i < 40; ++i) server_.NewSession("a-all");
  const std::string foreign = server_.NewSession("b-all");
  constexpr int kPairs = 20'000;
  std::mt19937_64 random(1);
  std::vector<std::pair<double, bool>> times;  // microseconds, of the foreign one
  for (int i = 0; i < kPairs; ++i) {
    bool is_foreign = random() % 2 == 0;
    for (int half = 0; half < 2; ++half, is_foreign = !is_foreign) {
      v1::GetSessionRequest request;
      request.set_session_id(is_foreign ? foreign : missing_);
      v1::GetSessionResponse response;
      Context context;
      context.AddMetadata("authorization", "Bearer a-user");
      const auto start = std::chrono::steady_clock::now();
      const grpc::Status status = server_.stubs->session->GetSession(&context, request, &response);
      times.emplace_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
              .count(),
          is_foreign);
      ASSERT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
    }
  }
  // What the scheduler did to the slowest calls is noise.
  std::vector<double> sorted;
  for (const auto& [time, is_foreign] : times) sorted.push_back(time);
  std::sort(sorted.begin(), sorted.end());
  const double most = sorted[sorted.size() * 95 / 100];
  Sample of_foreign;
  Sample of_missing;
  for (const auto& [time, is_foreign] : times) {
    if (time <= most) (is_foreign ? of_foreign : of_missing).Add(time);
  }
  const double t = (of_foreign.Mean() - of_missing.Mean()) /
                   std::sqrt(of_foreign.VarianceOfMean() + of_missing.VarianceOfMean());
  std::cout << "foreign " << of_foreign.Mean() << " us, missing " << of_missing.Mean()
            << " us, t = " << t << "\n";
  EXPECT_LT(std::abs(t), 4.5);
}

}  // namespace
}  // namespace lethe::testing
