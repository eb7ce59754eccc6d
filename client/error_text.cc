#include "client/error_text.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "client/client.h"

namespace lethe::client {
namespace {

constexpr std::pair<const char*, const char*> kHints[] = {
    {"EPOCH_PASSED", "certify the present state instead"},
    {"PARTITION_NOT_PROVED", "nothing was evicted, and the session goes on as it is"},
    {"WRONG_SESSION_KIND",
     "lethe vectors append and read are for vector sessions, lethe append and generate for those "
     "of "
     "a model; lethe session get says which this is"},
};

// Fields that the caller gives as files and does not know by name.
constexpr std::pair<const char*, const char*> kFieldHints[] = {
    {"values.num_columns",
     "lethe vectors append --values FILE: a row for each key, of the session's value_dim numbers; "
     "lethe session get says how many"},
    {"keys.num_columns",
     "KEYS: rows of the session's key_dim numbers; lethe session get says how many"},
};

// What to do when nobody knows whether the server did it.
std::string OutcomeHint(const CallError& error) {
  return error.request_id.empty()
             ? "whether the server did it is unknown: look before you repeat it"
             : absl::StrCat("whether the server did it is unknown: repeat the command with ",
                            "--request-id ", error.request_id,
                            ", and it is done once, with the same answer");
}

// What the caller can do next; "" where the message says it all.
std::string Hint(absl::StatusCode code, const CallError& error) {
  if (error.outcome_unknown) return OutcomeHint(error);
  switch (code) {
    case absl::StatusCode::kDeadlineExceeded:
      return "allow it more time with --timeout";
    case absl::StatusCode::kAborted:
      return "the session changed meanwhile; run the command again";
    case absl::StatusCode::kUnimplemented:
      return "this server does not offer the call";
    case absl::StatusCode::kInternal:
      return "this is a fault of the server";
    default:
      break;
  }
  for (const auto& [name, hint] : kHints) {
    if (error.reason == name) return hint;
  }
  const auto field = error.metadata.find("field");
  for (const auto& [name, hint] : kFieldHints) {
    if (field != error.metadata.end() && field->second == name) return hint;
  }
  return "";
}

}  // namespace

CallError DecodeError(const absl::Status& status) {
  CallError error;
  error.code = absl::StatusCodeToString(status.code());
  error.message = std::string(status.message());
  const absl::optional<absl::Cord> payload = status.GetPayload(kErrorInfoType);
  v1::ErrorInfo info;
  if (payload && info.ParseFromString(std::string(*payload))) {
    error.reason = info.reason();
    error.metadata.insert(info.metadata().begin(), info.metadata().end());
  }
  if (const absl::optional<absl::Cord> request_id = status.GetPayload(kOutcomeUnknownType)) {
    error.outcome_unknown = true;
    error.request_id = std::string(*request_id);
  }
  return error;
}

std::string FormatError(const absl::Status& status, const std::string& address) {
  const CallError error = DecodeError(status);
  std::string text;
  if (status.code() == absl::StatusCode::kUnavailable && error.reason.empty()) {
    const absl::optional<absl::Cord> other = status.GetPayload(kServerAddressType);
    const std::string server = other ? std::string(*other) : address;
    if (error.outcome_unknown) {
      return absl::StrCat("the connection to ", server, " was lost before the answer came (",
                          error.message, ")\n  hint: ", OutcomeHint(error));
    }
    return absl::StrCat(
        "no server answers at ", server, " (", error.message, ")\n  hint: start lethe-server",
        other ? " there, and wait until it listens" : ", or name its address with --server");
  }
  text = absl::StrCat(
      "the server refused: ", error.message.empty() ? std::string("no message") : error.message,
      "\n  code: ", error.code);
  if (!error.reason.empty()) {
    absl::StrAppend(&text, "\n  reason: ", error.reason);
  }
  for (const auto& [key, value] : error.metadata) {
    absl::StrAppend(&text, "\n  ", key, ": ", value);
  }
  const std::string hint = Hint(status.code(), error);
  if (!hint.empty()) {
    absl::StrAppend(&text, "\n  hint: ", hint);
  }
  return text;
}

}  // namespace lethe::client
