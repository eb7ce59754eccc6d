// lethe vectors append.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands/append_report.h"
#include "client/commands/commands.h"
#include "client/commands/progress.h"
#include "client/commands/report.h"
#include "client/commands/request_parts.h"
#include "client/commands/vector_calls.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

struct AppendOptions {
  v1::AppendVectorsRequest request;  // without its rows
  std::string keys_path;
  std::string values_path;
};

absl::StatusOr<VectorRows> ReadRows(Context& context, const AppendOptions& options) {
  if (options.keys_path == "-" && options.values_path == "-") {
    return absl::InvalidArgumentError("only one of KEYS and --values can be standard input");
  }
  VectorRows rows;
  LETHE_ASSIGN_OR_RETURN(rows.keys, ReadVectors(context.io(), options.keys_path));
  if (options.values_path.empty()) return rows;
  LETHE_ASSIGN_OR_RETURN(rows.values, ReadVectors(context.io(), options.values_path));
  if (rows.values.num_rows != rows.keys.num_rows) {
    return absl::InvalidArgumentError(absl::StrCat("--values: want a row for each of the ",
                                                   rows.keys.num_rows, " keys, got ",
                                                   FormatCount(rows.values.num_rows, "row")));
  }
  return rows;
}

absl::Status Append(Context& context, const AppendOptions& options) {
  LETHE_ASSIGN_OR_RETURN(const VectorRows rows, ReadRows(context, options));
  LETHE_RETURN_IF_ERROR(CheckPartIds(options.request.request_id(),
                                     NumParts(rows.keys.num_rows, RowsPerCall(rows)), "file"));
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::AppendVectorsResponse appended;
  absl::Status status;
  {
    Progress progress(context.io(), "appending");
    const auto show = [&](int64_t num_done) {
      progress.Update(absl::StrCat(num_done, " of ", rows.keys.num_rows, " vectors"));
    };
    status = OfWhole(AppendRows(*client, options.request, rows, show, &appended),
                     options.request.request_id());
  }
  return ReportAppended(context, status,
                        {appended.token_ids(), appended.num_inputs(), options.request.subject()},
                        {"file", "vector"});
}

}  // namespace

void AddVectorsAppendCommand(CLI::App& vectors, Context& context) {
  CLI::App* command = vectors.add_subcommand("append", "Append keys, with their values");
  const auto options = std::make_shared<AppendOptions>();
  command->add_option("SESSION", *options->request.mutable_session_id(), "Session id")->required();
  command
      ->add_option("KEYS", options->keys_path,
                   "Keys, one a line: numbers separated by white space or a comma, # begins a "
                   "comment, no header line; or .npy ('<f8', '<f4'); - for standard input")
      ->required();
  command->add_option("--values", options->values_path,
                      "Values, a row for each key, in the same forms");
  command->add_option("--subject", *options->request.mutable_subject(),
                      "Subject label of these vectors, to forget them by");
  command->add_option("--request-id", *options->request.mutable_request_id(),
                      "A repeat with the same id returns the first answer");
  command->footer("Example: lethe vectors append $V keys.csv --values v.csv --subject patient-17");
  command->callback([&context, options] { context.Finish(Append(context, *options)); });
}

}  // namespace lethe::client
