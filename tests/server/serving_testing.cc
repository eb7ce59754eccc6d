#include "tests/server/serving_testing.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/base/check.h"
#include "server/model/config.h"
#include "server/model/safetensors.h"
#include "server/model/synthetic_model.h"

namespace lethe::testing {
namespace {

constexpr uint64_t kWeightSeed = 20261129;

ModelConfig ParsedConfig(const std::string& name) {
  absl::StatusOr<ModelConfig> config = ParseModelConfig(TinyConfig(name));
  LETHE_CHECK(config.ok());
  return *std::move(config);
}

}  // namespace

std::string TinyConfig(const std::string& name) {
  return R"({"format":"lethe-model/1","name":")" + name + R"(","tokenizer":"bytes","vocab_size":256,
    "end_of_text":0,"width":16,"max_tokens":600,"norm_eps":1e-6,"layers":[
    {"type":"local","heads":2,"head_dim":8,"window":8,"conv_width":3,"mlp_width":16,"alibi_slopes":[0.1,0.3]},
    {"type":"memory","conv_width":3,"groups":[
      {"kind":"sv","heads":1,"key_dim":8,"value_dim":8,"sigma":1.0,"box_mass":8,"ridge":0.00048828125},
      {"kind":"palimpsa_d","heads":1,"key_dim":8,"value_dim":8,"rank":4},
      {"kind":"vla","heads":1,"key_dim":8,"value_dim":8,"variant":"vla","nudge":true,"lambda0":0.1,"read_norm":"rms"},
      {"kind":"ovq","heads":1,"key_dim":8,"value_dim":8,"slots":8},
      {"kind":"window","heads":1,"key_dim":8,"value_dim":8,"window":8,"alibi_slopes":[0.1]}]},
    {"type":"mlp","mlp_width":16}]})";
}

std::shared_ptr<const Model> TinyModel() {
  static const auto* model = [] {
    const ModelConfig config = ParsedConfig("tiny");
    auto created = Model::Create(config, SyntheticTensors(config, kWeightSeed));
    LETHE_CHECK(created.ok());
    return new std::shared_ptr<const Model>(*std::move(created));
  }();
  return *model;
}

void WriteTinyModel(const std::string& directory, const std::string& name) {
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/config.json") << TinyConfig(name);
  std::ofstream(directory + "/model.safetensors", std::ios::binary)
      << SafetensorsBytes(SyntheticTensors(ParsedConfig(name), kWeightSeed));
}

TempDirectory::TempDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lethe-test-XXXXXX").string();
  LETHE_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool RecordingSink::Started(const StartedEvent& event) {
  started.push_back(event);
  if (on_started) on_started();
  return true;
}

bool RecordingSink::Delta(const DeltaEvent& event) {
  if (static_cast<int64_t>(tokens.size() + event.tokens.size()) > tokens_accepted_max) return false;
  deltas.push_back(event);
  tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
  if (!event.tokens.empty() && on_token) on_token();
  return true;
}

bool RecordingSink::ForgetNotice(const ForgetNoticeEvent& event) {
  notices.push_back(event);
  return true;
}

bool RecordingSink::Progress(const ProgressEvent& event) {
  progress.push_back(event);
  return true;
}

bool RecordingSink::Finished(const FinishedEvent& event) {
  finished.push_back(event);
  return true;
}

std::vector<int32_t> RecordingSink::VocabIds() const {
  std::vector<int32_t> ids;
  for (const GeneratedTokenEvent& token : tokens) ids.push_back(token.vocab_id);
  return ids;
}

std::string RecordingSink::Raw() const {
  std::string raw;
  for (const DeltaEvent& delta : deltas) raw += delta.raw;
  return raw;
}

TestTrail::TestTrail() {
  auto opened = DataDirectory::Open(directory.path() + "/data", "lethe.dev/audit/test");
  LETHE_CHECK(opened.ok());
  data = *std::move(opened);
  trail = {data->log(), data->recorder(), audit::Sha256Of("program"), "lethe test"};
}

RequestKey Key(const std::string& request_id, const std::string& content) {
  return {request_id, audit::Sha256Of(content)};
}

GenerateCommand Prompt(const std::string& text, int64_t max_tokens) {
  GenerateCommand command;
  command.prompt = TinyModel()->Tokenize(text);
  command.sampling.seed = 7;
  command.sampling.max_tokens = max_tokens;
  command.ignore_end_of_text = true;
  return command;
}

std::shared_ptr<SessionEntry> NewEntry(SessionRegistry* registry) {
  auto entry = registry->Create({TinyModel(), {}, ""}, {});
  LETHE_CHECK(entry.ok());
  return *std::move(entry);
}

audit::Sha256Digest DigestOf(const std::shared_ptr<SessionEntry>& entry) {
  FairMutexLock lock(&entry->mutex);
  return entry->session->Digest();
}

audit::Sha256Digest FreshDigest(const std::vector<int32_t>& vocab_ids) {
  const auto session = Session::Create(TinyModel(), {});
  LETHE_CHECK(session.ok());
  if (!vocab_ids.empty()) {
    LETHE_CHECK((*session)->Append(vocab_ids, "", InputKind::kAppended).ok());
  }
  return (*session)->Digest();
}

std::vector<int32_t> HistoryOf(const std::shared_ptr<SessionEntry>& entry) {
  FairMutexLock lock(&entry->mutex);
  return entry->LiveModelSession().value()->vocab_ids();
}

std::vector<int32_t> Continuation(const std::vector<int32_t>& history,
                                  const SamplingParameters& sampling, int64_t count) {
  const auto session = Session::Create(TinyModel(), {});
  LETHE_CHECK(session.ok());
  LETHE_CHECK((*session)->Append(history, "", InputKind::kAppended).ok());
  std::vector<int32_t> drawn;
  for (int64_t i = 0; i < count; ++i) {
    const auto token = Sample((*session)->logits(), (*session)->repetition_counts(), sampling,
                              (*session)->num_tokens());
    LETHE_CHECK(token.ok());
    LETHE_CHECK((*session)->AppendGenerated(token->vocab_id).ok());
    drawn.push_back(token->vocab_id);
  }
  return drawn;
}

}  // namespace lethe::testing
