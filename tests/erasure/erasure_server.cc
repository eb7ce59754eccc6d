#include "tests/erasure/erasure_server.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <thread>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "server/model/config.h"
#include "server/model/safetensors.h"
#include "server/model/synthetic_model.h"
#include "tests/integration/vectors_testing.h"
#include "tests/testing/http_get.h"

namespace lethe::testing {
namespace {

constexpr char kFaultyServer[] = LETHE_BINARY_DIR "/bin/lethe-server-faulty";

constexpr char kSv[] =
    R"({"kind":"sv","heads":1,"key_dim":8,"value_dim":8,"sigma":1.0,"box_mass":8,"ridge":0.00048828125})";
constexpr char kStreaming[] =
    R"({"kind":"palimpsa_d","heads":1,"key_dim":8,"value_dim":8,"rank":4},
       {"kind":"vla","heads":1,"key_dim":8,"value_dim":8,"variant":"vla","nudge":true,"lambda0":0.1,"read_norm":"rms"},
       {"kind":"ovq","heads":1,"key_dim":8,"value_dim":8,"slots":8},
       {"kind":"window","heads":1,"key_dim":8,"value_dim":8,"window":8,"alibi_slopes":[0.1]})";
constexpr char kLocal[] =
    R"({"type":"local","heads":2,"head_dim":8,"window":8,"conv_width":3,"mlp_width":16,"alibi_slopes":[0.1,0.3]})";

std::string Memory(const std::string& groups) {
  return absl::StrCat(R"({"type":"memory","conv_width":3,"groups":[)", groups, "]}");
}

void WriteModel(const std::string& directory, const std::string& name) {
  const ModelConfig config = ParseModelConfig(ErasureModelConfig(name)).value();
  std::filesystem::create_directories(directory);
  audit::WriteFile(directory + "/config.json", ErasureModelConfig(name));
  audit::WriteFile(directory + "/model.safetensors",
                   SafetensorsBytes(SyntheticTensors(config, kErasureWeights)));
}

void ExpectOk(const grpc::Status& status) { EXPECT_TRUE(status.ok()) << status.error_message(); }

std::string TextOf(const grpc::Status& status) {
  return status.error_message() + status.error_details();
}

}  // namespace

std::string ErasureModelConfig(const std::string& name) {
  const std::string layers =
      name == kBoundedModel ? absl::StrCat(kLocal, ",", Memory(absl::StrCat(kSv, ",", kStreaming)),
                                           R"(,{"type":"mlp","mlp_width":16})")
                            : absl::StrCat(Memory(kStreaming), ",", kLocal, ",", Memory(kSv));
  return absl::StrCat(R"({"format":"lethe-model/1","name":")", name,
                      R"(","tokenizer":"bytes","vocab_size":256,"end_of_text":0,"width":16,)",
                      R"("max_tokens":4096,"norm_eps":1e-6,"layers":[)", layers, "]}");
}

ErasureServer::ErasureServer(std::optional<Fault> fault, std::vector<std::string> arguments)
    : fault_(fault), arguments_(std::move(arguments)) {
  for (const char* name : {kBoundedModel, kContextualModel}) {
    WriteModel(directory_.path() + "/" + name, name);
  }
  std::filesystem::create_directories(directory_.path() + "/tmp");
  Start();
}

void ErasureServer::Control(int crash_point) {
  const std::string path = directory_.path() + "/control";
  audit::WriteFile(path, absl::StrCat(fault_ ? static_cast<int>(*fault_) : -1, " ", crash_point));
  if (program_ == nullptr) return;
  program_->Signal(SIGUSR2);
  while (std::filesystem::exists(path)) std::this_thread::yield();
}

void ErasureServer::Start() {
  const std::string& root = directory_.path();
  program_ = nullptr;
  Control(0);
  setenv("LETHE_TEST_CONTROL", (root + "/control").c_str(), 1);
  setenv("TMPDIR", (root + "/tmp").c_str(), 1);
  std::vector<std::string> arguments = {"--model",
                                        root + "/" + kBoundedModel,
                                        "--model",
                                        root + "/" + kContextualModel,
                                        "--data",
                                        data_path(),
                                        "--listen",
                                        "127.0.0.1:0",
                                        "--metrics",
                                        "127.0.0.1:0",
                                        "--compute-threads",
                                        "2",
                                        "--log-level",
                                        "debug"};
  arguments.insert(arguments.end(), arguments_.begin(), arguments_.end());
  program_ = std::make_unique<Program>(std::move(arguments), root + "/stderr", kFaultyServer);
  unsetenv("TMPDIR");
  stubs_ = std::make_unique<Stubs>(ConnectTo(program_->ReadAddress()));
  program_->ReadLine();  // the trust file
  const std::string url = program_->ReadLine();
  if (const size_t at = url.find("127."); at != std::string::npos) {
    metrics_address_ = url.substr(at, url.rfind('/') - at);
  }
}

std::string ErasureServer::CreateSession(const std::string& model) {
  Context context;
  v1::CreateSessionRequest request;
  request.set_model(model);
  v1::CreateSessionResponse response;
  ExpectOk(stubs_->session->CreateSession(&context, request, &response));
  sessions_.push_back(response.session().session_id());
  return sessions_.back();
}

std::string ErasureServer::CreateVectorSession() {
  Context context;
  v1::CreateVectorSessionResponse response;
  ExpectOk(stubs_->memory->CreateVectorSession(&context, Requests("").create, &response));
  sessions_.push_back(response.session().session_id());
  return sessions_.back();
}

v1::TokenRange ErasureServer::Append(const std::string& session, const std::string& text,
                                     const std::string& label) {
  Context context;
  v1::AppendRequest request;
  request.set_session_id(session);
  request.mutable_input()->set_text(text);
  request.set_subject(label);
  request.set_request_id(absl::StrCat("append-", sessions_.size(), "-", ++num_requests_));
  v1::AppendResponse response;
  ExpectOk(stubs_->session->Append(&context, request, &response));
  return response.token_ids();
}

v1::TokenRange ErasureServer::AppendRows(const std::string& session,
                                         const std::vector<double>& keys,
                                         const std::vector<double>& values,
                                         const std::string& label) {
  Context context;
  v1::AppendVectorsRequest request;
  request.set_session_id(session);
  SetNumbers(keys, kKeyDim, request.mutable_keys());
  SetNumbers(values, kValueDim, request.mutable_values());
  request.set_subject(label);
  v1::AppendVectorsResponse response;
  ExpectOk(stubs_->memory->AppendVectors(&context, request, &response));
  return response.token_ids();
}

std::string ErasureServer::Generate(const std::string& session, const std::string& prompt,
                                    const std::string& label, bool remember) {
  Context context;
  v1::GenerateRequest request;
  request.set_session_id(session);
  request.mutable_prompt()->set_text(prompt);
  request.set_subject(label);
  request.mutable_output()->set_max_tokens(12);
  request.mutable_output()->set_ignore_end_of_text(true);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(7);
  request.set_remember(remember);
  const auto reader = stubs_->generation->Generate(&context, request);
  std::string text;
  for (v1::GenerateResponse event; reader->Read(&event);) text += event.delta().text();
  ExpectOk(reader->Finish());
  return text;
}

grpc::Status ErasureServer::Forget(const v1::ForgetRequest& request) {
  Context context;
  v1::ForgetResponse response;
  const grpc::Status status = stubs_->forgetting->Forget(&context, request, &response);
  if (status.ok()) seen_ += response.SerializeAsString();
  return status;
}

grpc::Status ErasureServer::ForgetSubject(const std::string& session, const std::string& label,
                                          const std::string& request_id) {
  v1::ForgetRequest request;
  request.set_session_id(session);
  request.mutable_selection()->set_subject(label);
  request.set_derived_policy(v1::DERIVED_POLICY_FORGET_DERIVED);
  request.set_request_id(request_id);
  return Forget(request);
}

grpc::Status ErasureServer::ForgetRange(const std::string& session, const v1::TokenRange& range) {
  v1::ForgetRequest request;
  request.set_session_id(session);
  *request.mutable_selection()->mutable_tokens()->add_ranges() = range;
  request.set_derived_policy(v1::DERIVED_POLICY_KEEP_AND_REPORT);
  return Forget(request);
}

grpc::Status ErasureServer::Delete(const std::string& session) {
  Context context;
  v1::DeleteSessionRequest request;
  request.set_session_id(session);
  v1::DeleteSessionResponse response;
  return stubs_->session->DeleteSession(&context, request, &response);
}

void ErasureServer::ForgetEverywhere(const std::string& label) {
  Context context;
  v1::ForgetSubjectRequest request;
  request.set_subject(label);
  request.set_derived_policy(v1::DERIVED_POLICY_FORGET_DERIVED);
  v1::ForgetSubjectResponse response;
  ExpectOk(stubs_->forgetting->ForgetSubject(&context, request, &response));
  Context watch_context;
  v1::WatchSubjectJobRequest watch;
  watch.set_job_id(response.job().job_id());
  const auto reader = stubs_->forgetting->WatchSubjectJob(&watch_context, watch);
  for (v1::WatchSubjectJobResponse event; reader->Read(&event);) {
    seen_ += event.SerializeAsString();
  }
  ExpectOk(reader->Finish());
  Context get_context;
  v1::GetSubjectJobRequest get;
  get.set_job_id(response.job().job_id());
  v1::GetSubjectJobResponse job;
  ExpectOk(stubs_->forgetting->GetSubjectJob(&get_context, get, &job));
  EXPECT_TRUE(job.has_summary());
  seen_ += job.SerializeAsString();
}

std::string ErasureServer::Export(const std::string& session) {
  Context context;
  v1::ExportSessionRequest request;
  request.set_session_id(session);
  request.set_key(std::string(32, '\0'));
  const auto reader = stubs_->session->ExportSession(&context, request);
  std::string file;
  for (v1::ExportSessionResponse piece; reader->Read(&piece);) file += piece.data();
  ExpectOk(reader->Finish());
  return file;
}

std::string ErasureServer::Import(const std::string& file) {
  Context context;
  v1::ImportSessionResponse response;
  const auto writer = stubs_->session->ImportSession(&context, &response);
  v1::ImportSessionRequest request;
  request.mutable_header()->set_key(std::string(32, '\0'));
  EXPECT_TRUE(writer->Write(request));
  request.set_data(file);
  EXPECT_TRUE(writer->Write(request));
  writer->WritesDone();
  ExpectOk(writer->Finish());
  sessions_.push_back(response.session().session_id());
  return sessions_.back();
}

bool ErasureServer::AwaitWord(const std::string& pattern) const {
  for (int wait = 0; wait < 300; ++wait) {
    if (std::regex_search(audit::ReadFile(directory_.path() + "/stderr"), std::regex(pattern)))
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

std::string ErasureServer::Digest(const std::string& session) {
  Context context;
  v1::GetStateDigestRequest request;
  request.set_session_id(session);
  v1::GetStateDigestResponse response;
  const grpc::Status status = stubs_->session->GetStateDigest(&context, request, &response);
  return status.ok() ? response.digest().sha256() : TextOf(status);
}

void ErasureServer::Certify(const std::string& session) {
  Context context;
  v1::CertifyRequest request;
  request.set_session_id(session);
  request.set_include_bundle(true);
  v1::CertifyResponse response;
  ExpectOk(stubs_->certification->Certify(&context, request, &response));
  seen_ += response.SerializeAsString();
}

void ErasureServer::Read(const std::string& session, const std::vector<double>& queries) {
  Context context;
  v1::ReadRequest request;
  request.set_session_id(session);
  SetNumbers(queries, kKeyDim, request.mutable_queries());
  v1::ReadResponse response;
  ExpectOk(stubs_->memory->Read(&context, request, &response));
}

std::string ErasureServer::RepliesAbout(const std::string& session) {
  std::string replies;
  for (uint64_t seq = 1;; ++seq) {
    Context context;
    v1::GetCertificateRequest request;
    request.set_session_id(session);
    request.set_seq(seq);
    request.set_include_bundle(true);
    v1::GetCertificateResponse response;
    grpc::Status status = stubs_->certification->GetCertificate(&context, request, &response);
    replies += TextOf(status);
    if (!status.ok()) {  // an older record's bundle has passed, the record has not
      Context again;
      request.set_include_bundle(false);
      status = stubs_->certification->GetCertificate(&again, request, &response);
    }
    replies += TextOf(status) + response.SerializeAsString();
    if (!status.ok()) break;
  }
  Context context;
  v1::ListInputsRequest list;
  list.set_session_id(session);
  list.set_page_size(65536);
  list.set_include_content(true);
  v1::ListInputsResponse inputs;
  replies += TextOf(stubs_->session->ListInputs(&context, list, &inputs));
  for (const v1::Input& input : inputs.inputs()) replies += input.subject() + input.text();
  Context vectors_context;
  v1::ListVectorsRequest list_vectors;
  list_vectors.set_session_id(session);
  v1::ListVectorsResponse vectors;
  replies += TextOf(stubs_->memory->ListVectors(&vectors_context, list_vectors, &vectors));
  return replies + vectors.SerializeAsString();
}

std::vector<Hit> ErasureServer::ScanReplies(const Markers& markers) {
  std::vector<Hit> hits;
  markers.scanner().ScanBytes(seen_, "an answer", &hits);
  for (const std::string& session : sessions_) {
    markers.scanner().ScanBytes(RepliesAbout(session), "a later answer", &hits);
  }
  Context context;
  v1::ListRecordsResponse records;
  ExpectOk(stubs_->audit->ListRecords(&context, {}, &records));
  markers.scanner().ScanBytes(records.SerializeAsString(), "the audit log's records", &hits);
  const std::string page = HttpGet(metrics_address_, "/metrics");
  EXPECT_NE(page.find("lethe_forgets_total"), std::string::npos);
  markers.scanner().ScanBytes(page, "the page of metrics", &hits);
  return hits;
}

std::vector<Hit> ErasureServer::ScanFiles(const Markers& markers) {
  std::vector<Hit> hits;
  markers.scanner().ScanDirectory(directory_.path(), &hits);
  return hits;
}

std::vector<Hit> ErasureServer::ScanMemory(const Markers& markers) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  std::vector<Hit> hits;
  do {
    hits.clear();
    markers.scanner().ScanProcess(program_->process(), &hits);
  } while (!hits.empty() && std::chrono::steady_clock::now() < end);
  return hits;
}

}  // namespace lethe::testing
