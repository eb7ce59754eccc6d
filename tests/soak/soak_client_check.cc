// What SoakClient knows of its session, compared with what the server holds.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "tests/server/serving_testing.h"
#include "tests/soak/canary.h"
#include "tests/soak/soak_client.h"

namespace lethe::soak {

using testing::Context;

void SoakClient::Check(bool with_state) {
  if (session_id_.empty()) return;
  bool complete = false;
  const std::vector<v1::Input> inputs = ListInputs(&complete);
  if (!complete) return Complain("the session cannot be listed");
  CheckInputs(inputs);
  if (with_state) CheckState(inputs);
}

// Page by page. Not complete: a call that was given up was at work in between.
std::vector<v1::Input> SoakClient::ListInputs(bool* complete) {
  constexpr int kAttempts = 50;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::vector<v1::Input> inputs;
    v1::ListInputsRequest request;
    request.set_session_id(session_id_);
    request.set_page_size(static_cast<int32_t>(1 + Draw(400)));
    request.set_include_content(true);
    for (*complete = true; *complete;) {
      Context context;
      v1::ListInputsResponse response;
      *complete =
          Accept("ListInputs", channel_.stubs().session->ListInputs(&context, request, &response));
      inputs.insert(inputs.end(), response.inputs().begin(), response.inputs().end());
      request.set_page_token(response.next_page_token());
      if (response.next_page_token().empty()) break;
    }
    if (*complete) return inputs;
  }
  return {};
}

void SoakClient::CheckInputs(const std::vector<v1::Input>& inputs) {
  std::string text;
  std::map<std::string, std::string> appended;
  std::map<uint64_t, int32_t> held;
  for (const v1::Input& input : inputs) {
    text += input.text();
    held[input.token_id()] = input.vocab_id();
    Scan("a label", input.subject());
    if (forgotten_.contains(input.subject())) Complain("an input of a forgotten label");
    if (input.kind() == v1::INPUT_KIND_APPENDED) appended[input.subject()] += input.text();
  }
  Scan("a history", text);
  for (const auto& [label, told] : told_) {
    if (appended[label] != told.text) Complain("a text that was taken is not there, or another is");
  }
  for (const std::string& label : forgotten_) {
    const std::string canary = label.substr(label.find(kCanaryPrefix));
    if (absl::StrContains(text, canary)) Complain("text of a forgotten label");
  }
  for (const auto& [token_id, token] : delivered_) {
    const auto found = held.find(token_id);
    if (found == held.end() || found->second != token.vocab_id) {
      Complain(absl::StrCat("a delivered token is not there, of a stream that ended in way ",
                            static_cast<int>(token.ending)));
    }
  }
  log_->Count("histories compared");
}

void SoakClient::CheckState(const std::vector<v1::Input>& inputs) {
  Context context;
  v1::GetStateDigestRequest request;
  request.set_session_id(session_id_);
  v1::GetStateDigestResponse response;
  const grpc::Status status =
      channel_.stubs().session->GetStateDigest(&context, request, &response);
  if (!Accept("GetStateDigest", status)) return Complain("no digest");
  std::vector<int32_t> vocab_ids;
  for (const v1::Input& input : inputs) vocab_ids.push_back(input.vocab_id());
  const audit::Sha256Digest fresh = testing::FreshDigest(vocab_ids);
  if (response.num_inputs() != static_cast<int64_t>(inputs.size()) ||
      response.digest().sha256() != audit::AsStringView(fresh)) {
    Complain("the state is not that of a fresh session with this history");
  }
  log_->Count("states compared with fresh ones");
}

}  // namespace lethe::soak
