// lethe partition.
#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/option_checks.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

constexpr int kRowsPerPage = 65536;

struct PartitionOptions {
  v1::ListPartitionRequest request;
  int64_t limit = 0;
};

struct Counts {
  int64_t margin = 0;
  int64_t error = 0;
  int64_t reserve = 0;
};

Counts CountClasses(const v1::ListPartitionResponse& partition) {
  Counts counts;
  for (const v1::PartitionRow& row : partition.rows()) {
    counts.margin += row.partition_class() == v1::PARTITION_CLASS_MARGIN ? 1 : 0;
    counts.error += row.partition_class() == v1::PARTITION_CLASS_ERROR ? 1 : 0;
    counts.reserve += row.partition_class() == v1::PARTITION_CLASS_RESERVE ? 1 : 0;
  }
  return counts;
}

absl::StatusOr<v1::ListPartitionResponse> ListAll(Client& client,
                                                  v1::ListPartitionRequest request) {
  request.set_page_size(kRowsPerPage);
  v1::ListPartitionResponse all;
  do {
    LETHE_ASSIGN_OR_RETURN(const v1::ListPartitionResponse page, client.ListPartition(request));
    all.MergeFrom(page);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  all.clear_next_page_token();
  return all;
}

absl::Status Partition(Context& context, const PartitionOptions& options) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(v1::ListPartitionResponse partition, ListAll(*client, options.request));
  if (context.json()) {
    if (options.limit > 0 && options.limit < partition.rows_size()) {
      const int limit = static_cast<int>(options.limit);
      partition.mutable_rows()->DeleteSubrange(limit, partition.rows_size() - limit);
    }
    context.PrintJson(MessageToJson(partition));
    return absl::OkStatus();
  }
  const Counts counts = CountClasses(partition);
  context.out() << "Partition of " << OneLine(partition.head()) << ": "
                << FormatCount(partition.rows_size(), "key") << ", " << counts.margin << " margin, "
                << counts.error << " error, " << counts.reserve << " reserve; rho "
                << FormatDouble(partition.rho()) << ", mass " << FormatDouble(partition.mass())
                << "\n";
  RowTable table({"token_id", "class", "alpha", "g"});
  for (const v1::PartitionRow& row : partition.rows()) {
    if (options.limit > 0 && static_cast<int64_t>(table.num_rows()) == options.limit) {
      break;
    }
    table.Add({absl::StrCat(row.token_id()),
               EnumName(v1::PartitionClass_descriptor(), row.partition_class()),
               FormatDouble(row.alpha()), FormatDouble(row.g())});
  }
  if (table.num_rows() > 0) {
    table.Print(context.out());
  }
  if (static_cast<int64_t>(table.num_rows()) < partition.rows_size()) {
    context.out() << "  and " << partition.rows_size() - static_cast<int64_t>(table.num_rows())
                  << " more\n"
                  << std::flush;
  }
  return absl::OkStatus();
}

}  // namespace

void AddPartitionCommand(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(
      "partition", "Which inputs a support-vector head holds as margin, error and reserve keys");
  const auto options = std::make_shared<PartitionOptions>();
  command->add_option("SESSION", *options->request.mutable_session_id(), "Session id")->required();
  command->add_option("--head", *options->request.mutable_head(),
                      "Head, as lethe certify names it (default: the first)");
  command->add_option("--limit", options->limit, "Show at most this many rows; 0 = all (default)")
      ->check(WholeNumber(0, std::numeric_limits<int64_t>::max()));
  command->footer("Example: lethe partition $S --head layer.4.group.0.head.0 --limit 20");
  command->callback([&context, options] { context.Finish(Partition(context, *options)); });
}

}  // namespace lethe::client
