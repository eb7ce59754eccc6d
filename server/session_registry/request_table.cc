#include "server/session_registry/request_table.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"

#include "server/error/error_info.h"

namespace lethe {

absl::StatusOr<std::shared_ptr<StoredAnswer>> RequestTable::FindStored(
    const RequestKey& key) const {
  const auto found = entries_.find(key.request_id);
  if (key.request_id.empty() || found == entries_.end()) return std::shared_ptr<StoredAnswer>();
  if (!found->second.content.has_value()) {
    return WithErrorInfo(
        absl::AlreadyExistsError("request_id: a Forget removed what this request brought in"),
        {"REQUEST_FORGOTTEN", {{"field", "request_id"}}});
  }
  if (*found->second.content != key.content) {
    return WithErrorInfo(
        absl::InvalidArgumentError("request_id: was used for a request with other content"),
        {"REQUEST_ID_REUSED", {{"field", "request_id"}}});
  }
  return found->second.answer;
}

void RequestTable::Remember(const RequestKey& key, std::shared_ptr<StoredAnswer> answer) {
  if (key.request_id.empty()) return;
  const auto [entry, is_new] = entries_.try_emplace(key.request_id, Entry{key.content, nullptr});
  entry->second.answer = std::move(answer);  // the content of a known id stays, or stays forgotten
  if (!is_new) return;
  order_.push_back(key.request_id);
  DropOldest();
}

// What runs finds its entry when it ends.
void RequestTable::DropOldest() {
  const auto is_over = [this](const std::string& request_id) {
    return !entries_.at(request_id).answer->IsRunning();
  };
  while (order_.size() > kMaxRequests) {
    const auto oldest = std::find_if(order_.begin(), order_.end(), is_over);
    if (oldest == order_.end()) return;
    entries_.erase(*oldest);
    order_.erase(oldest);
  }
}

std::vector<RequestTable::Saved> RequestTable::Save(const std::vector<TokenIdRange>* after) const {
  std::vector<Saved> saved;
  for (const std::string& request_id : order_) {
    const Entry& entry = entries_.at(request_id);
    std::string answer = entry.answer->Encode(after == nullptr);
    if (answer.empty()) continue;
    const bool forgotten = after != nullptr && entry.answer->BroughtIn(*after);
    saved.push_back({request_id, forgotten ? std::nullopt : entry.content, std::move(answer)});
  }
  return saved;
}

void RequestTable::Restore(const Saved& saved, std::shared_ptr<StoredAnswer> answer) {
  Remember({saved.request_id, saved.content.value_or(audit::Sha256Digest{})}, std::move(answer));
  entries_.at(saved.request_id).content = saved.content;
}

void RequestTable::Remove(const std::string& request_id) {
  if (entries_.erase(request_id) == 0) return;
  order_.erase(std::find(order_.begin(), order_.end(), request_id));
}

bool RequestTable::IsForgotten(const std::string& request_id) const {
  const auto found = entries_.find(request_id);
  return found != entries_.end() && !found->second.content.has_value();
}

bool RequestTable::DropSubject(absl::string_view subject) {
  bool found = false;
  for (auto& [request_id, entry] : entries_) {
    if (!entry.answer->Names(subject)) continue;
    entry.answer->DropOpenings();
    found = true;
  }
  return found;
}

void RequestTable::AfterForget(absl::Span<const TokenIdRange> forgotten) {
  for (auto& [request_id, entry] : entries_) {
    entry.answer->DropOpenings();
    if (!entry.content.has_value() || !entry.answer->BroughtIn(forgotten)) continue;
    explicit_bzero(entry.content->data(), entry.content->size());
    entry.content.reset();
  }
}

}  // namespace lethe
