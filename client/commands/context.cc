#include "client/commands/context.h"

#include <utility>

#include "client/commands/connection.h"
#include "client/commands/report.h"
#include "client/error_text.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

std::string Dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<Client*> Context::client() {
  if (client_ == nullptr) {
    LETHE_ASSIGN_OR_RETURN(const ConnectOptions connect, ReadConnectOptions(options_));
    auto client = Client::Connect(connect);
    if (!client.ok()) {
      return client.status();
    }
    client_ = std::move(client).value();
  }
  return client_.get();
}

void Context::PrintJson(const Json& value) { io_.out << Dump(value) << "\n" << std::flush; }

void Context::Finish(const absl::Status& status) {
  exit_code_ = status.ok() ? kExitDone : Fail(status);
}

int Context::Fail(const absl::Status& status) {
  const bool refused = status.GetPayload(kRpcStatusType).has_value();
  const bool failed_check = !refused && status.code() == absl::StatusCode::kDataLoss;
  const CallError error = DecodeError(status);
  if (json()) {
    Json object{{"kind", refused ? "refused" : (failed_check ? "verification" : "usage")},
                {"message", error.message}};
    if (refused) {
      object["code"] = error.code;
      object["reason"] = error.reason;
      object["metadata"] = error.metadata;
      if (error.outcome_unknown) {
        object["outcome"] = "unknown";
        object["request_id"] = error.request_id;
      }
    }
    io_.err << Dump(Json{{"error", object}}) << "\n" << std::flush;
  } else {
    // A server's message could otherwise drive the terminal.
    io_.err << Painted(io_.err_is_terminal && io_.color, Color::kRed, "lethe:") << " "
            << SafeForTerminal(refused ? FormatError(status, options_.server) : error.message)
            << "\n"
            << std::flush;
  }
  return refused ? kExitRefused : (failed_check ? kExitVerificationFailed : kExitUsage);
}

}  // namespace lethe::client
