#include "server/rpc/validation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "audit/crypto/sha256.h"
#include "kernels/base/number_text.h"
#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/limits/limits.h"
#include "server/rpc/request_key.h"

namespace lethe {
namespace {

bool IsIdCharacter(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; }

bool IsSessionId(const std::string& text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), IsIdCharacter);
}

bool IsVisibleAscii(char c) { return c > ' ' && c < '\x7f'; }

}  // namespace

absl::Status CheckSessionId(const std::string& session_id) {
  if (IsSessionId(session_id)) return absl::OkStatus();
  return InvalidFieldError("session_id", "1 to 64 lower-case letters, digits and hyphens");
}

absl::Status CheckSessionPageToken(const std::string& page_token) {
  if (page_token.empty() || IsSessionId(page_token)) return absl::OkStatus();
  return InvalidFieldError("page_token", "next_page_token of the same listing, or empty");
}

absl::StatusOr<std::shared_ptr<SessionEntry>> FindSession(const ServerCore& core, const Call& call,
                                                          const std::string& session_id) {
  LETHE_RETURN_IF_ERROR(CheckSessionId(session_id));
  LETHE_ASSIGN_OR_RETURN(std::shared_ptr<SessionEntry> entry,
                         core.sessions.Find(call.principal().tenant, session_id));
  LETHE_RETURN_IF_ERROR(entry->Availability());
  return entry;
}

absl::Status CheckRequestId(const std::string& request_id) {
  if (request_id.size() <= 64 &&
      std::all_of(request_id.begin(), request_id.end(), IsVisibleAscii)) {
    return absl::OkStatus();
  }
  return InvalidFieldError("request_id", "at most 64 visible ASCII characters");
}

absl::Status CheckLabel(absl::string_view field, const std::string& label) {
  if (label.size() <= kLabelBytesMax) return absl::OkStatus();
  return InvalidFieldError(field, absl::StrCat("at most ", kLabelBytesMax, " bytes of UTF-8"));
}

absl::Status CheckNonce(const std::string& nonce) {
  if (nonce.empty() || (nonce.size() >= 16 && nonce.size() <= 32)) return absl::OkStatus();
  return InvalidFieldError("nonce", "0 or 16 to 32 bytes");
}

absl::Status CheckIntegerRange(absl::string_view field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return InvalidFieldError(field, absl::StrCat(min, " to ", max));
}

absl::Status CheckRange(absl::string_view field, double value, double min, double max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return InvalidFieldError(field, absl::StrCat(NumberText(min), " to ", NumberText(max)));
}

absl::Status CheckVocabIds(absl::string_view field, const v1::VocabIds& ids, const Model& model) {
  if (ids.vocab_ids_size() > kVocabIdsMax) {
    return InvalidFieldError(field, absl::StrCat("at most ", kVocabIdsMax, " ids"));
  }
  const int64_t vocab_size = model.config().vocab_size;
  for (const int32_t id : ids.vocab_ids()) {
    if (id < 0 || id >= vocab_size) {
      return InvalidFieldError(field, absl::StrCat("each at least 0 and below ", vocab_size));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> ReadContent(absl::string_view field,
                                                 const v1::Content& content, const Model& model,
                                                 int64_t max_tokens) {
  std::vector<int32_t> ids;
  if (content.content_case() == v1::Content::kText) {
    if (content.text().size() > kTextBytesMax) {
      return InvalidFieldError(absl::StrCat(field, ".text"),
                               absl::StrCat("1 to ", kTextBytesMax, " bytes"));
    }
    ids = model.Tokenize(content.text());
  } else if (content.content_case() == v1::Content::kVocabIds) {
    const std::string name = absl::StrCat(field, ".vocab_ids");
    LETHE_RETURN_IF_ERROR(CheckVocabIds(name, content.vocab_ids(), model));
    ids.assign(content.vocab_ids().vocab_ids().begin(), content.vocab_ids().vocab_ids().end());
  }
  if (ids.empty()) return InvalidFieldError(field, "at least one token");
  const auto num_tokens = static_cast<int64_t>(ids.size());
  if (num_tokens > max_tokens) {
    return TooLargeError({"PROMPT_TOO_LONG", "--prompt-tokens", max_tokens, num_tokens}, field,
                         "tokens");
  }
  return ids;
}

RequestKey MakeRequestKey(const google::protobuf::Message& request, const std::string& request_id) {
  if (request_id.empty()) return {};
  return {request_id,
          audit::HmacSha256(RequestHashKey().bytes(), absl::StrCat(request.GetTypeName(), "\n",
                                                                   request.SerializeAsString()))};
}

}  // namespace lethe
