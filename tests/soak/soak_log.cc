#include "tests/soak/soak_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "tests/integration/server_testing.h"
#include "tests/soak/canary.h"

namespace lethe::soak {
namespace {

using grpc::StatusCode;

// No content in an error, not even the caller's own.
bool HoldsContent(const grpc::Status& status, const v1::ErrorInfo& info) {
  bool holds = !ForeignCanary(status.error_message(), -1).empty();
  for (const auto& [key, value] : info.metadata()) {
    holds = holds || !ForeignCanary(value, -1).empty() || !ForeignCanary(key, -1).empty();
  }
  return holds;
}

}  // namespace

const std::vector<Refusal> kRefusals = {
    {StatusCode::CANCELLED, "", "the client cancelled"},
    {StatusCode::CANCELLED, "CANCELLED", "the client cancelled while the server was at work"},
    {StatusCode::DEADLINE_EXCEEDED, "", "the client's deadline passed"},
    {StatusCode::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", "the same, seen by the server"},
    {StatusCode::FAILED_PRECONDITION, "DERIVED_TOKENS", "policy FAIL with derived tokens"},
    {StatusCode::FAILED_PRECONDITION, "NOT_RESUMABLE", "inputs or a Forget came in between"},
    {StatusCode::INVALID_ARGUMENT, "CONTEXT_BUDGET", "the session is full"},
    {StatusCode::ABORTED, "SESSION_BUSY", "a call that the client gave up is still at work"},
    {StatusCode::ABORTED, "SESSION_CHANGED", "likewise"},
    {StatusCode::ABORTED, "HISTORY_CHANGED", "likewise"},
    {StatusCode::ABORTED, "REQUEST_RUNNING", "a repeat while the first call is still at work"},
    {StatusCode::ALREADY_EXISTS, "REQUEST_DONE", "a repeat of a Generate that had ended"},
    {StatusCode::ALREADY_EXISTS, "REQUEST_FORGOTTEN", "a repeat of what a Forget removed"},
    {StatusCode::NOT_FOUND, "INPUT_NOT_FOUND", "nothing of the label is retained"},
    {StatusCode::FAILED_PRECONDITION, "EMPTY_SESSION", "nothing is retained"},
    {StatusCode::RESOURCE_EXHAUSTED, "QUEUE_WAIT", "a stream waited for its turn for too long"},
};

bool SoakLog::Accept(const char* operation, const grpc::Status& status) {
  if (status.ok()) {
    Count(operation);
    return true;
  }
  const v1::ErrorInfo info = testing::DetailOf(status);
  const bool is_documented =
      std::any_of(kRefusals.begin(), kRefusals.end(), [&](const Refusal& refusal) {
        return refusal.code == status.error_code() && refusal.reason == info.reason();
      });
  const std::string text = absl::StrCat(operation, " refused: code ", status.error_code(), " ",
                                        info.reason().empty() ? "(no detail)" : info.reason());
  Count(text);
  if (!is_documented) Complain(absl::StrCat(text, ": ", status.error_message()));
  if (HoldsContent(status, info)) Complain(text + ": the error holds content");
  return false;
}

void SoakLog::Count(const std::string& what, int64_t count) {
  MutexLock lock(&mutex_);
  counts_[what] += count;
}

void SoakLog::Complain(const std::string& text) {
  MutexLock lock(&mutex_);
  ++num_complaints_;
  if (complaints_.size() < kComplaintsMax) complaints_.push_back(text);
}

std::vector<std::string> SoakLog::complaints() const {
  MutexLock lock(&mutex_);
  return complaints_;
}

int64_t SoakLog::num_complaints() const {
  MutexLock lock(&mutex_);
  return num_complaints_;
}

int64_t SoakLog::CountOf(const std::string& what) const {
  MutexLock lock(&mutex_);
  const auto found = counts_.find(what);
  return found == counts_.end() ? 0 : found->second;
}

std::string SoakLog::Text() const {
  MutexLock lock(&mutex_);
  std::string text;
  for (const auto& [what, count] : counts_) absl::StrAppend(&text, count, " ", what, "\n");
  return text;
}

}  // namespace lethe::soak
