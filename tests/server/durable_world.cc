#include "tests/server/durable_world.h"

#include <random>
#include <tuple>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/generation/durable_sink.h"

namespace lethe::testing {
namespace {

std::vector<double> Normals(size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> numbers(count);
  for (double& number : numbers) number = normal(random);
  return numbers;
}

auto Tied(const SessionInfo& info) {
  // What a cache or a snapshot costs depends on the way that led here.
  return std::make_tuple(info.num_inputs, info.num_forgotten, info.num_support_vectors,
                         info.audit_seq, info.epoch);
}

}  // namespace

VectorOptions SmallVectors() {
  VectorOptions options;
  options.params = svdd::MakeParams(1.5, 4, 0x1.0p-11, 3).value();
  options.value_dim = 2;
  options.selection = true;
  return options;
}

bool SessionView::operator==(const SessionView& other) const {
  return digest == other.digest && inputs == other.inputs && next_token_id == other.next_token_id &&
         Tied(info) == Tied(other.info) && certificates == other.certificates;
}

void DurableWorld::Close() {
  registry_.reset();
  data.reset();
}

absl::Status DurableWorld::Open(bool with_model) {
  Close();
  LETHE_ASSIGN_OR_RETURN(data,
                         DataDirectory::Open(data_path(), origin, [this](const absl::Status&) {
                           ++num_failures;
                           if (on_failure) on_failure();
                         }));
  trail_ = {data->log(), data->recorder(), audit::Sha256Of("program"), "lethe test",
            data->ledger()};
  models_ = ModelSet();
  if (with_model) LETHE_RETURN_IF_ERROR(models_.Add(TinyModel()));
  registry_ = std::make_unique<SessionRegistry>(2000);
  LETHE_ASSIGN_OR_RETURN(summary, RecoverSessions({data->store(), data->log(), &models_,
                                                   kDefaultStoredInputBytes, &trail_},
                                                  registry_.get()));
  registry_->UseLedger(data->ledger());
  LETHE_ASSIGN_OR_RETURN(
      replayed, ReplayErasures({data->store(), registry_.get(), &scheduler_, &trail_}, summary));
  return absl::OkStatus();
}

std::shared_ptr<SessionEntry> DurableWorld::NewModelSession(const RequestKey& request) {
  return registry_->Create({TinyModel(), {}, "a name"}, request).value();
}

std::shared_ptr<SessionEntry> DurableWorld::NewVectorSession() {
  return registry_->Create({nullptr, {}, "vectors", SmallVectors()}, {}).value();
}

std::shared_ptr<SessionEntry> DurableWorld::Find(const std::string& session_id) {
  return registry_->Find(session_id).value();
}

absl::StatusOr<AppendReceipt> DurableWorld::Append(const std::string& session_id,
                                                   const std::string& text,
                                                   const std::string& subject,
                                                   const std::string& request_id) {
  return AppendInputs({TinyModel()->Tokenize(text), subject, Key(request_id)}, call_, &scheduler_,
                      Find(session_id));
}

absl::Status DurableWorld::Generate(const std::string& session_id, const std::string& prompt,
                                    const std::string& request_id, int64_t max_tokens) {
  GenerateCommand command = Prompt(prompt, max_tokens);
  command.sampling.temperature = 1;
  command.stop = {"a stop string that never comes"};
  command.subject = "answers";
  command.request = Key(request_id);
  const std::shared_ptr<SessionEntry> entry = Find(session_id);
  RecordingSink recording;
  recording.on_token = on_token;
  DurableSink sink(entry->journal.get(), &recording);
  return lethe::Generate(command, call_, &scheduler_, entry, &sink);
}

absl::StatusOr<AppendReceipt> DurableWorld::AppendRows(const std::string& session_id, int64_t count,
                                                       unsigned seed, const std::string& subject,
                                                       const std::string& request_id) {
  const std::vector<double> keys = Normals(static_cast<size_t>(count) * 3, seed);
  const std::vector<double> values = Normals(static_cast<size_t>(count) * 2, seed + 1000);
  return AppendVectors({keys, values, subject, Key(request_id)}, call_, &scheduler_,
                       Find(session_id));
}

absl::StatusOr<ForgetReceipt> DurableWorld::Forget(const std::string& session_id,
                                                   const std::string& subject,
                                                   const std::string& request_id) {
  ForgetCommand command;
  command.selector = ForgetSelector::Subject(subject);
  command.policy = DerivedPolicy::kKeepAndReport;
  command.request = Key(request_id);
  return ForgetInputs(command, call_, &scheduler_, trail_, Find(session_id));
}

absl::StatusOr<CertifyReceipt> DurableWorld::RunCertify(const std::string& session_id,
                                                        const std::string& request_id) {
  CertifyCommand command;
  command.request = Key(request_id);
  return Certify(command, call_, &scheduler_, trail_, Find(session_id));
}

absl::StatusOr<EvictReceipt> DurableWorld::Evict(const std::string& session_id, uint64_t seq,
                                                 const std::string& request_id) {
  return EvictReserve({seq, "", Key(request_id)}, call_, &scheduler_, trail_, Find(session_id));
}

FetchedCertificate DurableWorld::Certificate(const std::string& session_id, uint64_t seq) {
  return GetCertificate(seq, false, call_, &scheduler_, trail_, Find(session_id)).value();
}

SessionView DurableWorld::View(const std::string& session_id) {
  const std::shared_ptr<SessionEntry> entry = Find(session_id);
  SessionView view;
  size_t num_records = 0;
  {
    FairMutexLock lock(&entry->mutex);
    const AnySession* session = entry->LiveSession().value();
    entry->Publish();
    view.digest = session->Digest();
    const Inputs& inputs = session->inputs();
    for (int64_t rank = 0; rank < inputs.size(); ++rank) {
      const Input& input = inputs.at(rank);
      view.inputs.push_back(
          absl::StrCat(input.token_id, " ", input.vocab_id, " ", static_cast<int>(input.kind), " ",
                       static_cast<int>(input.derived_from_forgotten), " ", inputs.subject(rank)));
    }
    view.next_token_id = entry->model != nullptr
                             ? static_cast<const Session*>(session)->next_token_id()
                             : static_cast<const VectorSession*>(session)->next_token_id();
    num_records = entry->record_refs.size();
  }
  view.info = entry->Info();
  for (uint64_t seq = 1; seq <= num_records; ++seq) {
    const FetchedCertificate fetched = Certificate(session_id, seq);
    view.certificates.push_back(fetched.certificate.envelope + fetched.certificate.opening);
  }
  return view;
}

std::vector<audit::CertificateFiles> DurableWorld::Records(const std::string& session_id) {
  const std::shared_ptr<SessionEntry> entry = Find(session_id);
  const uint64_t num_records = entry->Info().audit_seq;
  std::vector<audit::CertificateFiles> records;
  for (uint64_t seq = 1; seq <= num_records; ++seq) {
    const CertificateText text =
        GetCertificate(seq, false, call_, &scheduler_, trail_, entry).value().certificate;
    audit::CertificateFiles files;
    files.envelope = text.envelope;
    files.proof_file = text.log_proof;
    if (!text.opening.empty()) files.opening = text.opening;
    records.push_back(std::move(files));
  }
  return records;
}

}  // namespace lethe::testing
