#include "tests/fuzz/fuzz_server.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "server/diagnostics/log.h"
#include "server/recovery/recovery.h"
#include "server/store/data_directory.h"
#include "tests/fuzz/fuzz_call.h"

namespace lethe::fuzz {
namespace {

using google::protobuf::MethodDescriptor;

constexpr int kInputsPerServer = 2000;
int64_t num_servers = 0;
constexpr const char* kServices[] = {"SessionService",    "GenerationService",    "MemoryService",
                                     "ForgettingService", "CertificationService", "AuditService",
                                     "ModelService"};

const google::protobuf::ServiceDescriptor* Service(absl::string_view name) {
  // The generated files are known once something of theirs was named.
  v1::ErrorInfo::descriptor();
  const auto* const service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
      absl::StrCat("lethe.v1.", name));
  LETHE_CHECK(service != nullptr);
  return service;
}

}  // namespace

struct FuzzServer::Running {
  explicit Running(const std::string& directory);
  ~Running();

  std::unique_ptr<DataDirectory> data;
  ServerCore core{2, 64};
  std::unique_ptr<RpcServer> rpc;
  std::shared_ptr<grpc::Channel> channel;
};

// As lethe-server's main().
FuzzServer::Running::Running(const std::string& directory) {
  auto opened = DataDirectory::Open(directory, "");
  LETHE_CHECK(opened.ok());
  data = *std::move(opened);
  core.trail = {data->log(), data->recorder(), audit::Sha256Of("program"), "lethe fuzz",
                data->ledger()};
  core.sessions.UseLedger(data->ledger());
  core.record_spki = data->record_spki();
  core.on_failure = [](const absl::Status&) { std::abort(); };
  LETHE_CHECK(core.models.Add(testing::TinyModel()).ok());
  const auto recovered = RecoverSessions(
      {data->store(), data->log(), &core.models, core.stored_input_bytes, &core.trail},
      &core.sessions);
  LETHE_CHECK(recovered.ok() && recovered->num_quarantined + recovered->num_unnamed == 0);
  LETHE_CHECK(core.subjects.Recover(data->store(), 0).ok());
  Limits limits;
  limits.tenant_requests_per_second = 0;  // a fuzzer is faster
  core.SetLimits(limits);
  auto started = RpcServer::Start(&core, {"127.0.0.1:0"});
  LETHE_CHECK(started.ok());
  rpc = *std::move(started);
  core.subjects.Resume();
  channel = testing::ConnectTo(rpc->address());
}

FuzzServer::Running::~Running() {
  rpc->Shutdown(0);
  core.subjects.Stop();
}

FuzzServer::FuzzServer() : number_(++num_servers) {
  SetLogLevel(LogLevel::kError);
  Restart();
}

FuzzServer::~FuzzServer() = default;

void FuzzServer::Restart() {
  running_.reset();
  running_ = std::make_unique<Running>(directory_.path() + "/data");
}

size_t FuzzServer::num_services() { return std::size(kServices); }

const MethodDescriptor* FuzzServer::Method(size_t service, size_t method) {
  const auto* const descriptor = Service(kServices[service % num_services()]);
  return descriptor->method(static_cast<int>(method) % descriptor->method_count());
}

const MethodDescriptor* FuzzServer::Method(const char* service, const char* method) {
  const MethodDescriptor* const descriptor = Service(service)->FindMethodByName(method);
  LETHE_CHECK(descriptor != nullptr);
  return descriptor;
}

grpc::Status FuzzServer::Call(const MethodDescriptor& method,
                              const std::vector<std::string>& messages,
                              std::vector<std::string>* replies) {
  const grpc::Status status = CallBytes(running_->channel, method, messages, replies);
  if (!status.ok()) CheckError(method.name(), status);
  return status;
}

grpc::Status FuzzServer::Ask(const char* service, const char* method,
                             const google::protobuf::Message& request,
                             google::protobuf::Message* reply) {
  std::vector<std::string> replies;
  const grpc::Status status =
      Call(*Method(service, method), {request.SerializeAsString()}, &replies);
  if (status.ok()) LETHE_CHECK(replies.size() == 1 && reply->ParseFromString(replies[0]));
  return status;
}

std::string FuzzServer::NewEmptySession() {
  v1::CreateSessionResponse created;
  LETHE_CHECK(Ask("SessionService", "CreateSession", v1::CreateSessionRequest(), &created).ok());
  return created.session().session_id();
}

std::string FuzzServer::NewModelSession() {
  v1::AppendRequest append;
  append.set_session_id(NewEmptySession());
  append.mutable_input()->set_text(kContentCanary);
  v1::AppendResponse appended;
  LETHE_CHECK(Ask("SessionService", "Append", append, &appended).ok());
  append.mutable_input()->set_text("12345678");
  append.set_subject("a");
  LETHE_CHECK(Ask("SessionService", "Append", append, &appended).ok());
  return append.session_id();
}

std::string FuzzServer::NewVectorSession() {
  v1::CreateVectorSessionRequest create;
  create.mutable_options()->set_key_dim(2);
  create.mutable_options()->set_value_dim(1);
  create.mutable_options()->set_sigma(1);
  create.mutable_options()->set_box_mass(2);
  v1::CreateVectorSessionResponse created;
  LETHE_CHECK(Ask("MemoryService", "CreateVectorSession", create, &created).ok());
  v1::AppendVectorsRequest append;
  append.set_session_id(created.session().session_id());
  v1::AppendVectorsResponse appended;
  for (const int rows : {1, 2}) {
    append.set_subject(rows == 2 ? "a" : "");
    append.mutable_keys()->set_num_rows(rows);
    append.mutable_keys()->set_num_columns(2);
    append.mutable_values()->set_num_rows(rows);
    append.mutable_values()->set_num_columns(1);
    append.mutable_keys()->clear_values();
    append.mutable_values()->clear_values();
    for (int i = 0; i < 2 * rows; ++i) append.mutable_keys()->add_values(0.25 * i * rows);
    for (int i = 0; i < rows; ++i) append.mutable_values()->add_values(i - 0.5);
    LETHE_CHECK(Ask("MemoryService", "AppendVectors", append, &appended).ok());
  }
  return append.session_id();
}

std::string FuzzServer::Digest(const std::string& session_id) {
  const auto entry = running_->core.sessions.Find(session_id);
  if (!entry.ok()) return "";
  FairMutexLock lock(&(*entry)->mutex);
  const absl::StatusOr<AnySession*> session = (*entry)->LiveSession();
  if (!session.ok()) return "";
  const audit::Sha256Digest digest = (*session)->StateParts().Digest();
  return std::string(audit::AsStringView(digest));
}

std::vector<v1::Input> FuzzServer::Inputs(const std::string& session_id) {
  v1::ListInputsRequest request;
  request.set_session_id(session_id);
  request.set_page_size(65'536);
  request.set_include_content(true);
  v1::ListInputsResponse response;
  LETHE_CHECK(Ask("SessionService", "ListInputs", request, &response).ok());
  LETHE_CHECK(response.next_page_token().empty());
  LETHE_CHECK(response.num_inputs() == response.inputs_size());
  return {response.inputs().begin(), response.inputs().end()};
}

void FuzzServer::CheckState(const std::string& session_id) {
  v1::GetSessionRequest request;
  request.set_session_id(session_id);
  v1::GetSessionResponse response;
  if (!Ask("SessionService", "GetSession", request, &response).ok()) return;
  if (response.session().model().empty()) return CheckVectorState(response.session());
  std::vector<int32_t> vocab_ids;
  for (const v1::Input& input : Inputs(session_id)) vocab_ids.push_back(input.vocab_id());
  const audit::Sha256Digest fresh = testing::FreshDigest(vocab_ids);
  LETHE_CHECK(Digest(session_id) == audit::AsStringView(fresh));
}

void FuzzServer::CheckVectorState(const v1::Session& session) {
  v1::CreateVectorSessionRequest create;
  *create.mutable_options() = session.vector_options();
  v1::CreateVectorSessionResponse created;
  LETHE_CHECK(Ask("MemoryService", "CreateVectorSession", create, &created).ok());
  v1::ListVectorsRequest list;
  list.set_session_id(session.session_id());
  v1::ListVectorsResponse listed;
  LETHE_CHECK(Ask("MemoryService", "ListVectors", list, &listed).ok());
  v1::AppendVectorsRequest append;
  append.set_session_id(created.session().session_id());
  for (const v1::VectorRow& row : listed.rows()) {
    append.mutable_keys()->mutable_values()->MergeFrom(row.key());
    append.mutable_values()->mutable_values()->MergeFrom(row.value());
  }
  append.mutable_keys()->set_num_rows(listed.rows_size());
  append.mutable_keys()->set_num_columns(session.vector_options().key_dim());
  append.mutable_values()->set_num_rows(listed.rows_size());
  append.mutable_values()->set_num_columns(session.vector_options().value_dim());
  if (session.vector_options().value_dim() == 0) append.clear_values();
  v1::AppendVectorsResponse appended;
  if (listed.rows_size() > 0) {
    LETHE_CHECK(Ask("MemoryService", "AppendVectors", append, &appended).ok());
  }
  LETHE_CHECK(Digest(append.session_id()) == Digest(session.session_id()));
  v1::DeleteSessionRequest remove;
  remove.set_session_id(append.session_id());
  v1::DeleteSessionResponse removed;
  LETHE_CHECK(Ask("SessionService", "DeleteSession", remove, &removed).ok());
}

std::vector<std::string> FuzzServer::Export(const std::string& session_id) {
  v1::ExportSessionRequest request;
  request.set_session_id(session_id);
  request.set_key(kExportKey);
  std::vector<std::string> replies;
  std::vector<std::string> parts;
  const MethodDescriptor& method = *Method("SessionService", "ExportSession");
  if (!Call(method, {request.SerializeAsString()}, &replies).ok()) return parts;
  for (const std::string& reply : replies) {
    v1::ExportSessionResponse response;
    LETHE_CHECK(response.ParseFromString(reply));
    v1::ImportSessionRequest part;
    part.set_data(response.data());
    parts.push_back(part.SerializeAsString());
  }
  return parts;
}

v1::ImportSessionResponse FuzzServer::ExportAndImport(const std::string& session_id,
                                                      const std::string& replaced) {
  v1::ImportSessionRequest first;
  first.mutable_header()->set_key(kExportKey);
  first.mutable_header()->set_session_id(replaced);
  first.mutable_header()->set_replace(!replaced.empty());
  std::vector<std::string> messages = Export(session_id);
  LETHE_CHECK(!messages.empty());
  messages.insert(messages.begin(), first.SerializeAsString());
  std::vector<std::string> replies;
  LETHE_CHECK(Call(*Method("SessionService", "ImportSession"), messages, &replies).ok());
  v1::ImportSessionResponse response;
  LETHE_CHECK(replies.size() == 1 && response.ParseFromString(replies[0]));
  return response;
}

void FuzzServer::WaitForJobs() {
  for (bool running = true; running;) {
    v1::ListSubjectJobsResponse jobs;
    LETHE_CHECK(
        Ask("ForgettingService", "ListSubjectJobs", v1::ListSubjectJobsRequest(), &jobs).ok());
    running = std::any_of(jobs.jobs().begin(), jobs.jobs().end(), [](const v1::SubjectJob& job) {
      return job.state() != v1::SUBJECT_JOB_STATE_DONE;
    });
    if (running) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void FuzzServer::DeleteSessions() {
  v1::ListSessionsResponse listed;
  LETHE_CHECK(Ask("SessionService", "ListSessions", v1::ListSessionsRequest(), &listed).ok());
  for (const v1::Session& session : listed.sessions()) {
    v1::DeleteSessionRequest remove;
    remove.set_session_id(session.session_id());
    v1::DeleteSessionResponse removed;
    LETHE_CHECK(Ask("SessionService", "DeleteSession", remove, &removed).ok());
  }
}

FuzzServer& SharedServer() {
  static auto* const server = new std::optional<FuzzServer>();
  static int num_inputs = 0;
  if (num_inputs++ % kInputsPerServer == 0) server->emplace();
  return **server;
}

}  // namespace lethe::fuzz
