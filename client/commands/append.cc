// lethe append.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands/append_report.h"
#include "client/commands/commands.h"
#include "client/commands/files.h"
#include "client/commands/progress.h"
#include "client/commands/report.h"
#include "client/commands/request_parts.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

// A longer text goes in several calls, so that progress shows and no call meets its size limit. The
// state does not depend on the cuts.
constexpr size_t kBytesPerCall = 32 << 10;

struct AppendOptions {
  v1::AppendRequest request;
  std::string path;
  std::optional<std::string> text;
};

absl::StatusOr<std::string> ReadText(Context& context, const AppendOptions& options) {
  if (options.text.has_value() == !options.path.empty()) {
    return absl::InvalidArgumentError(
        "give the text either as FILE (- for standard input) or with --text");
  }
  if (options.text) {
    return *options.text;
  }
  return ReadInput(options.path, context.io().in);
}

size_t NumParts(size_t num_bytes) {
  return num_bytes == 0 ? 1 : (num_bytes + kBytesPerCall - 1) / kBytesPerCall;
}

// Tells the session the text; *appended covers what went in, also when a later part was refused.
absl::Status AppendParts(Context& context, const std::string& text, v1::AppendRequest request,
                         v1::AppendResponse* appended) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  Progress progress(context.io(), "appending");
  const std::string request_id = request.request_id();
  const size_t num_parts = NumParts(text.size());
  size_t done = 0;
  do {
    const size_t num_bytes = std::min(kBytesPerCall, text.size() - done);
    request.mutable_input()->set_text(text.substr(done, num_bytes));
    request.set_request_id(PartId(request_id, done / kBytesPerCall, num_parts));
    LETHE_ASSIGN_OR_RETURN(const v1::AppendResponse response, client->Append(request));
    MergeAppended(response, appended);
    done += num_bytes;
    progress.Update(absl::StrCat(done, " of ", text.size(), " bytes"));
  } while (done < text.size());
  return absl::OkStatus();
}

absl::Status Append(Context& context, const AppendOptions& options) {
  LETHE_ASSIGN_OR_RETURN(const std::string text, ReadText(context, options));
  LETHE_RETURN_IF_ERROR(CheckPartIds(options.request.request_id(), NumParts(text.size()), "text"));
  v1::AppendResponse appended;
  const absl::Status status =
      OfWhole(AppendParts(context, text, options.request, &appended), options.request.request_id());
  return ReportAppended(context, status,
                        {appended.token_ids(), appended.num_inputs(), options.request.subject()},
                        {"text", "token"});
}

}  // namespace

void AddAppendCommand(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("append", "Tell the session a text without an answer");
  const auto options = std::make_shared<AppendOptions>();
  command->add_option("SESSION", *options->request.mutable_session_id(), "Session id")->required();
  command->add_option("FILE", options->path, "File to append, - for standard input");
  command->add_option("--text", options->text, "Text to append, in place of FILE");
  command->add_option("--subject", *options->request.mutable_subject(),
                      "Subject label of this text, to forget it by");
  command->add_option("--request-id", *options->request.mutable_request_id(),
                      "A repeat with the same id returns the first answer");
  command->footer(
      "Example: lethe append $S --text '[Record] Patient Kalo-17 takes zelvim.' --subject "
      "patient-17");
  command->callback([&context, options] { context.Finish(Append(context, *options)); });
}

}  // namespace lethe::client
