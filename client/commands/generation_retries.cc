#include "client/commands/generation_retries.h"

#include <chrono>
#include <cstdint>
#include <thread>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "client/error_text.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

class Stream {
 public:
  Stream(Context& context, v1::GenerateRequest request, GenerationPrinter& printer)
      : context_(context), request_(std::move(request)), printer_(printer) {
    last_token_id_ = request_.last_token_id();
  }

  absl::Status Run(Client* client) {
    absl::Status status = RunOnce(client);
    while (MayGoOn(status) && num_failures_ < kGenerateRetries) {
      std::this_thread::sleep_for(wait_);
      wait_ *= 3;
      ++num_failures_;
      request_.set_last_token_id(last_token_id_);
      status = RunOnce(client);
    }
    if (MayGoOn(status)) {
      printer_.Note(absl::StrCat("the same command with --last-token-id ", last_token_id_,
                                 " goes on with this answer"));
    }
    return status;
  }

 private:
  // An empty request_id or a fork leaves nothing to go on with.
  bool MayGoOn(const absl::Status& status) const {
    const bool is_kept = !request_.has_remember() || request_.remember();
    if (!has_begun_ || request_.request_id().empty() || !is_kept) {
      return false;
    }
    // The server may not have noticed yet that the first stream broke.
    const bool runs_still = absl::IsAborted(status) && request_.has_last_token_id() &&
                            DecodeError(status).reason == "REQUEST_RUNNING";
    return absl::IsUnavailable(status) || runs_still;
  }

  absl::Status RunOnce(Client* client) {
    bool is_shut_down = false;
    absl::Status status = client->Generate(request_, [&](const v1::GenerateResponse& event) {
      is_shut_down = is_shut_down || Take(event);
      return context_.out().good();
    });
    if (status.ok() && is_shut_down) {
      status = absl::UnavailableError("the server shut down before the answer was at its end");
      status.SetPayload(kRpcStatusType, absl::Cord());
    }
    return status;
  }

  // True for the event that a shutdown ends the stream with, where the answer can go on.
  bool Take(const v1::GenerateResponse& event) {
    if (event.has_started()) {
      has_begun_ = true;
      const bool from_start = event.started().has_resumed_after_token_id() &&
                              event.started().resumed_after_token_id() == 0;
      if (from_start && last_token_id_ != 0) {
        printer_.Note("the server has lost the end of the answer; here it is from its start");
      }
    }
    for (const v1::GeneratedToken& token : event.delta().tokens()) {
      last_token_id_ = token.token_id();
      num_failures_ = 0;
      wait_ = kFirstWait;
    }
    const bool is_shut_down = event.finished().reason() == v1::FINISH_REASON_SHUTDOWN &&
                              MayGoOn(absl::UnavailableError(""));
    if (!is_shut_down || context_.json()) {
      printer_.Print(event);
    }
    return is_shut_down;
  }

  static constexpr std::chrono::seconds kFirstWait{1};

  Context& context_;
  v1::GenerateRequest request_;
  GenerationPrinter& printer_;
  uint64_t last_token_id_ = 0;
  bool has_begun_ = false;
  int num_failures_ = 0;
  std::chrono::seconds wait_ = kFirstWait;
};

}  // namespace

absl::Status GenerateToEnd(Context& context, v1::GenerateRequest request,
                           GenerationPrinter& printer) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  const absl::Status status = Stream(context, std::move(request), printer).Run(client);
  printer.End();
  // The stream that nobody reads was cancelled here, not by the server.
  return context.out().good() ? status : OutputError();
}

}  // namespace lethe::client
