// Goal: after any sequence of operations, each answered by the server over gRPC, sessions hold what a plain list of inputs says they hold,
// and their states are those of fresh sessions that were given it.
// Method: the bytes are operations on up to three model sessions: Append, Generate (kept or not), Forget in each way of
// selecting and policy, by repeats and dry runs too, Certify, Export and Import, ForgetSubject, DeleteSession, a restart of the server. A list of
// (token_id, vocab_id, label, generated) does the same; it is compared after each operation, digests (contract C1) every few.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_bytes.h"
#include "tests/fuzz/fuzz_server.h"
#include "tests/fuzz/fuzz_targets.h"

namespace lethe::fuzz {
namespace {

constexpr int kOperationsMax = 24;
constexpr size_t kSessionsMax = 3;
constexpr size_t kHistoryMax = 200;
constexpr const char* kLabels[] = {"", "a", "b"};

struct Row {
  uint64_t token_id = 0;
  int32_t vocab_id = 0;
  std::string label;
  bool generated = false;
  bool derived =
      false;  // kept although what it was drawn from is gone, or drawn from what is so kept
};
using History = std::vector<Row>;

// What a Forget selects, and the ranks that it should remove.
struct Selection {
  v1::ForgetSelection message;
  std::set<size_t> ranks;
};

class Story {
 public:
  explicit Story(FuzzServer* server) : server_(server) { Create(); }
  void Operate(FuzzBytes* bytes);
  void Compare();

 private:
  using Session = std::map<std::string, History>::value_type;

  Session* Pick(FuzzBytes* bytes) {
    auto session = sessions_.begin();
    std::advance(session, bytes->Below(static_cast<int64_t>(sessions_.size())));
    return &*session;
  }
  std::string NewRequestId() { return absl::StrCat("request-", ++num_requests_); }
  void Create() { sessions_[server_->NewEmptySession()]; }
  void Append(Session* session, FuzzBytes* bytes);
  void Generate(Session* session, FuzzBytes* bytes);
  void Forget(Session* session, FuzzBytes* bytes);
  void ForgetLabel(FuzzBytes* bytes);
  void Certify(Session* session);
  void Move(Session* session, bool in_place);
  void Delete(Session* session);
  void CompareInputs(const Session& session);

  FuzzServer* const server_;
  std::map<std::string, History> sessions_;
  int num_requests_ = 0;
};

// Of the rows that stay, those that were generated behind the first selected one.
std::set<size_t> DerivedRanks(const History& history, const std::set<size_t>& selected) {
  std::set<size_t> derived;
  for (size_t rank = *selected.begin(); rank < history.size(); ++rank) {
    if (history[rank].generated && !selected.contains(rank)) derived.insert(rank);
  }
  return derived;
}

// OK or the code of the refusal; changes the history as a Forget does.
grpc::StatusCode Remove(const Selection& selection, v1::DerivedPolicy policy, History* history) {
  if (selection.ranks.empty()) return grpc::StatusCode::NOT_FOUND;
  const std::set<size_t> derived = DerivedRanks(*history, selection.ranks);
  if (policy == v1::DERIVED_POLICY_FAIL && !derived.empty()) {
    return grpc::StatusCode::FAILED_PRECONDITION;
  }
  History kept;
  for (size_t rank = 0; rank < history->size(); ++rank) {
    if (selection.ranks.contains(rank)) continue;
    if (policy == v1::DERIVED_POLICY_FORGET_DERIVED && derived.contains(rank)) continue;
    kept.push_back((*history)[rank]);
    kept.back().derived = kept.back().derived || derived.contains(rank);
  }
  *history = std::move(kept);
  return grpc::StatusCode::OK;
}

std::set<size_t> RanksWhere(const History& history, const std::function<bool(const Row&)>& take) {
  std::set<size_t> ranks;
  for (size_t rank = 0; rank < history.size(); ++rank) {
    if (take(history[rank])) ranks.insert(rank);
  }
  return ranks;
}

Selection SelectLabel(const History& history, const std::string& label) {
  Selection selection;
  selection.message.set_subject(label);
  selection.ranks = RanksWhere(history, [&](const Row& row) { return row.label == label; });
  return selection;
}

Selection Select(const History& history, FuzzBytes* bytes) {
  Selection selection;
  const uint64_t last = history.empty() ? 1 : history.back().token_id;
  const uint64_t id = 1 + bytes->Next() % (last + 1);
  switch (bytes->Below(5)) {
    case 0:
      return SelectLabel(history, kLabels[1 + bytes->Below(2)]);
    case 1: {
      const uint64_t end = id + 1 + static_cast<uint64_t>(bytes->Below(20));
      v1::TokenRange* const range = selection.message.mutable_tokens()->add_ranges();
      range->set_first(id);
      range->set_end(end);
      selection.ranks = RanksWhere(
          history, [&](const Row& row) { return row.token_id >= id && row.token_id < end; });
      break;
    }
    case 2: {
      selection.message.mutable_tokens()->add_token_ids(id);
      selection.ranks = RanksWhere(history, [&](const Row& row) { return row.token_id == id; });
      break;
    }
    case 3:
      selection.message.set_before_token_id(id);
      if (RanksWhere(history, [&](const Row& row) { return row.token_id == id; }).empty()) break;
      selection.ranks = RanksWhere(history, [&](const Row& row) { return row.token_id < id; });
      break;
    default:
      selection.message.set_everything(true);
      selection.ranks = RanksWhere(history, [](const Row&) { return true; });
  }
  return selection;
}

void Story::Append(Session* session, FuzzBytes* bytes) {
  v1::AppendRequest request;
  request.set_session_id(session->first);
  request.set_subject(kLabels[bytes->Below(3)]);
  request.set_request_id(NewRequestId());
  const std::string text = bytes->Piece(static_cast<size_t>(1 + bytes->Below(70)));
  if (text.empty() || session->second.size() > kHistoryMax) return;
  request.mutable_input()->set_text(text);
  v1::AppendResponse response;
  LETHE_CHECK(server_->Ask("SessionService", "Append", request, &response).ok());
  v1::AppendResponse repeated;
  LETHE_CHECK(server_->Ask("SessionService", "Append", request, &repeated).ok());
  LETHE_CHECK(repeated.SerializeAsString() == response.SerializeAsString());
  uint64_t token_id = response.token_ids().first();
  for (const char byte : text) {
    session->second.push_back({token_id++, static_cast<uint8_t>(byte), request.subject(), false});
  }
  LETHE_CHECK(token_id == response.token_ids().end());
}

void Story::Generate(Session* session, FuzzBytes* bytes) {
  v1::GenerateRequest request;
  request.set_session_id(session->first);
  request.set_subject(kLabels[bytes->Below(3)]);
  const std::string prompt = bytes->Piece(static_cast<size_t>(bytes->Below(20)));
  if (session->second.size() > kHistoryMax || (session->second.empty() && prompt.empty())) return;
  if (!prompt.empty()) request.mutable_prompt()->set_text(prompt);
  request.mutable_output()->set_max_tokens(static_cast<int32_t>(bytes->Below(12)));
  request.mutable_output()->set_ignore_end_of_text(true);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(bytes->Next());
  request.set_remember(bytes->Below(4) != 0);
  std::vector<std::string> replies;
  const grpc::Status status = server_->Call(*FuzzServer::Method("GenerationService", "Generate"),
                                            {request.SerializeAsString()}, &replies);
  LETHE_CHECK(status.ok());
  if (!request.remember()) return;
  const bool from_derived =
      !RanksWhere(session->second, [](const Row& row) { return row.derived; }).empty();
  for (const std::string& reply : replies) {
    v1::GenerateResponse event;
    LETHE_CHECK(event.ParseFromString(reply));
    uint64_t token_id = event.started().prompt_token_ids().first();
    for (size_t i = 0; event.has_started() && i < prompt.size(); ++i) {
      session->second.push_back(
          {token_id++, static_cast<uint8_t>(prompt[i]), request.subject(), false});
    }
    for (const v1::GeneratedToken& token : event.delta().tokens()) {
      session->second.push_back(
          {token.token_id(), token.vocab_id(), request.subject(), true, from_derived});
    }
  }
}

void Story::Forget(Session* session, FuzzBytes* bytes) {
  const Selection selection = Select(session->second, bytes);
  v1::ForgetRequest request;
  request.set_session_id(session->first);
  *request.mutable_selection() = selection.message;
  request.set_derived_policy(static_cast<v1::DerivedPolicy>(1 + bytes->Below(3)));
  request.set_request_id(NewRequestId());
  request.set_validate_only(bytes->Below(4) == 0);
  if (bytes->Below(4) == 0) request.set_way(v1::FORGET_WAY_REEVALUATION);
  History after = session->second;
  grpc::StatusCode expected = Remove(selection, request.derived_policy(), &after);
  v1::ForgetResponse response;
  const grpc::Status status = server_->Ask("ForgettingService", "Forget", request, &response);
  if (selection.message.has_before_token_id() && expected == grpc::StatusCode::NOT_FOUND &&
      !session->second.empty() &&
      session->second[0].token_id == selection.message.before_token_id()) {
    expected = grpc::StatusCode::INVALID_ARGUMENT;  // nothing is before the first
  }
  LETHE_CHECK(status.error_code() == expected);
  if (!status.ok()) return;
  const auto num_removed = static_cast<int64_t>(session->second.size() - after.size());
  LETHE_CHECK(response.num_forgotten() == num_removed);
  LETHE_CHECK(response.num_inputs() == static_cast<int64_t>(after.size()));
  if (request.validate_only()) return;
  session->second = std::move(after);
  v1::ForgetResponse repeated;
  LETHE_CHECK(server_->Ask("ForgettingService", "Forget", request, &repeated).ok());
  LETHE_CHECK(repeated.repeated_request());
  LETHE_CHECK(repeated.certificate().leaf_index() == response.certificate().leaf_index());
}

void Story::ForgetLabel(FuzzBytes* bytes) {
  v1::ForgetSubjectRequest request;
  request.set_subject(kLabels[1 + bytes->Below(2)]);
  request.set_derived_policy(static_cast<v1::DerivedPolicy>(1 + bytes->Below(3)));
  v1::ForgetSubjectResponse response;
  LETHE_CHECK(server_->Ask("ForgettingService", "ForgetSubject", request, &response).ok());
  server_->WaitForJobs();
  for (auto& [id, history] : sessions_) {
    Remove(SelectLabel(history, request.subject()), request.derived_policy(), &history);
  }
}

void Story::Certify(Session* session) {
  v1::CertifyRequest request;
  request.set_session_id(session->first);
  request.set_include_bundle(true);
  v1::CertifyResponse response;
  LETHE_CHECK(server_->Ask("CertificationService", "Certify", request, &response).ok());
  LETHE_CHECK(response.digest().sha256() == server_->Digest(session->first));
  v1::GetCertificateRequest again;
  again.set_session_id(session->first);
  v1::GetCertificateResponse kept;
  LETHE_CHECK(server_->Ask("CertificationService", "GetCertificate", again, &kept).ok());
  LETHE_CHECK(kept.certificate().envelope() == response.certificate().envelope());
}

// Into a new session, or into its own place.
void Story::Move(Session* session, bool in_place) {
  if (!in_place && sessions_.size() >= kSessionsMax) return;
  const std::string digest = server_->Digest(session->first);
  const v1::ImportSessionResponse imported =
      server_->ExportAndImport(session->first, in_place ? session->first : "");
  LETHE_CHECK(imported.digest().sha256() == digest && !imported.reevaluated());
  const std::string id = imported.session().session_id();
  LETHE_CHECK((id == session->first) == in_place);
  History history = session->second;
  // Ids in place move on; their order and what they stand for stays.
  const std::vector<v1::Input> inputs = server_->Inputs(id);
  LETHE_CHECK(inputs.size() == history.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    LETHE_CHECK(in_place || inputs[i].token_id() == history[i].token_id);
    history[i].token_id = inputs[i].token_id();
  }
  sessions_[id] = std::move(history);
}

void Story::Delete(Session* session) {
  v1::DeleteSessionRequest request;
  request.set_session_id(session->first);
  v1::DeleteSessionResponse response;
  LETHE_CHECK(server_->Ask("SessionService", "DeleteSession", request, &response).ok());
  LETHE_CHECK(response.num_inputs() == static_cast<int64_t>(session->second.size()));
  LETHE_CHECK(server_->Digest(session->first).empty());
  sessions_.erase(session->first);
  if (sessions_.empty()) Create();
}

void Story::Operate(FuzzBytes* bytes) {
  Session* const session = Pick(bytes);
  const std::string id = session->first;
  bool touches_all = false;
  switch (bytes->Below(16)) {
    case 0:
      if (sessions_.size() < kSessionsMax) Create();
      break;
    case 1:
    case 2:
    case 3:
    case 4:
      Append(session, bytes);
      break;
    case 5:
    case 6:
    case 7:
      Generate(session, bytes);
      break;
    case 8:
    case 9:
    case 10:
      Forget(session, bytes);
      break;
    case 11:
      Certify(session);
      break;
    case 12:
      Move(session, bytes->Below(2) == 0);
      break;
    case 13:
      ForgetLabel(bytes);
      touches_all = true;
      break;
    case 14:
      Delete(session);
      break;
    default:
      if (bytes->Below(4) != 0) break;
      server_->Restart();
      touches_all = true;
  }
  for (const Session& each : sessions_) {
    if (touches_all || each.first == id) CompareInputs(each);
  }
}

void Story::CompareInputs(const Session& session) {
  const std::vector<v1::Input> inputs = server_->Inputs(session.first);
  LETHE_CHECK(inputs.size() == session.second.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Row& row = session.second[i];
    LETHE_CHECK(inputs[i].rank() == static_cast<int64_t>(i));
    LETHE_CHECK(inputs[i].token_id() == row.token_id && inputs[i].vocab_id() == row.vocab_id);
    LETHE_CHECK(inputs[i].subject() == row.label && inputs[i].derived() == row.derived);
    LETHE_CHECK((inputs[i].kind() == v1::INPUT_KIND_GENERATED) == row.generated);
  }
}

void Story::Compare() {
  for (const Session& session : sessions_) {
    CompareInputs(session);
    server_->CheckState(session.first);
  }
}

}  // namespace

void FuzzOperations(absl::string_view input) {
  FuzzServer& server = SharedServer();
  FuzzBytes bytes(input);
  Story story(&server);
  for (int operation = 0; operation < kOperationsMax && !bytes.empty(); ++operation) {
    story.Operate(&bytes);
    if (operation % 8 == 7) story.Compare();
  }
  story.Compare();
  server.DeleteSessions();
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzOperations)
