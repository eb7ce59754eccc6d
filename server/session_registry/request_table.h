// RequestTable: the answers of a session's last mutations by request_id, so that a repeat is
// answered and not done again.
//
// Equation:  none.
// Shapes:    request_id: at most 64 characters, empty = no idempotency wanted; content: SHA-256
//            over the call's name and request without its request_id.
// Units:     none.
// Requires:  content covers the call's name (so that a stored answer has the type that Find asks
//            for).
// Rejects:   Find: INVALID_ARGUMENT, reason REQUEST_ID_REUSED, when the id came with other content;
//            ALREADY_EXISTS, reason REQUEST_FORGOTTEN, whatever the content, when a Forget removed
//            what the request brought in.
// Effects:   keeps the newest kMaxRequests answers, and those of requests that run. AfterForget passes DropOpenings to every answer
//            and destroys the content hashes of requests whose inputs went: with them, whoever knows
//            a request_id could try guesses of what was forgotten.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_SESSION_REGISTRY_REQUEST_TABLE_H_
#define LETHE_SERVER_SESSION_REGISTRY_REQUEST_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/crypto/sha256.h"
#include "kernels/base/check.h"
#include "server/session/forget.h"

namespace lethe {

struct RequestKey {
  std::string request_id;
  audit::Sha256Digest content{};
};

// What kind of answer Encode wrote; part of the stored format.
enum class AnswerKind : uint64_t {
  kAppend = 1,
  kForget = 2,
  kEvict = 3,
  kCertify = 4,
  kGenerate = 5,
  kCreate = 6,
  kDelete = 7,
};

// What a mutation answered.
class StoredAnswer {
 public:
  virtual ~StoredAnswer() = default;
  // Its bytes in the session store, an AnswerKind first; without what DropOpenings destroys, if so asked. Empty: it is
  // not kept over a restart.
  virtual std::string Encode(bool /*keep_openings*/) const { return ""; }
  // A Forget destroys what could tell, or help to guess, the state before it: openings, state
  // digests.
  virtual void DropOpenings() {}
  // The request is being worked on.
  virtual bool IsRunning() const { return false; }
  // True when it holds this label.
  virtual bool Names(absl::string_view /*subject*/) const { return false; }
  // The process that worked on it has ended, and token_ids go on at end_id: true when this ends the answer too, and Encode
  // now writes something else.
  virtual bool EndAt(uint64_t /*end_id*/) { return false; }
  // True when the request brought in one of these inputs, or may have.
  virtual bool BroughtIn(absl::Span<const TokenIdRange> /*token_ids*/) const { return false; }
};

class RequestTable {
 public:
  static constexpr size_t kMaxRequests = 1024;

  // The stored answer, or null when the request is new.
  template <typename Answer>
  absl::StatusOr<std::shared_ptr<const Answer>> Find(const RequestKey& key) const {
    absl::StatusOr<std::shared_ptr<StoredAnswer>> stored = FindStored(key);
    if (!stored.ok()) return stored.status();
    if (*stored == nullptr) return std::shared_ptr<const Answer>();
    auto answer = std::dynamic_pointer_cast<const Answer>(*stored);
    LETHE_CHECK(answer != nullptr);
    return answer;
  }
  // Stores or replaces; no effect with an empty request_id.
  void Remember(const RequestKey& key, std::shared_ptr<StoredAnswer> answer);
  void Remove(const std::string& request_id);
  // A Forget removed what this request brought in.
  bool IsForgotten(const std::string& request_id) const;
  void AfterForget(absl::Span<const TokenIdRange> forgotten);
  // Passes DropOpenings to the answers that hold this label; true when there were any.
  bool DropSubject(absl::string_view subject);

  size_t size() const { return entries_.size(); }

  // What a store keeps of the table, oldest first; `after`: as AfterForget of these ranges would leave it.
  struct Saved {
    std::string request_id;
    std::optional<audit::Sha256Digest> content;
    std::string answer;  // StoredAnswer::Encode
  };
  std::vector<Saved> Save(const std::vector<TokenIdRange>* after = nullptr) const;
  // Puts back what Save gave.
  void Restore(const Saved& saved, std::shared_ptr<StoredAnswer> answer);

 private:
  struct Entry {
    std::optional<audit::Sha256Digest> content;  // unset: forgotten
    std::shared_ptr<StoredAnswer> answer;
  };
  absl::StatusOr<std::shared_ptr<StoredAnswer>> FindStored(const RequestKey& key) const;
  void DropOldest();

  std::map<std::string, Entry> entries_;
  std::deque<std::string> order_;  // of first arrival
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_REQUEST_TABLE_H_
