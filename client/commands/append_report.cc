#include "client/commands/append_report.h"

#include "client/commands/report.h"
#include "client/id_ranges.h"

namespace lethe::client {

absl::Status ReportAppended(Context& context, const absl::Status& status, const Appended& appended,
                            const AppendNames& names) {
  const v1::TokenRange& ids = appended.token_ids;
  if (!status.ok()) {
    if (ids.first() < ids.end()) {
      context.err() << "lethe: only the first part of the " << names.input
                    << " was appended, token_ids " << FormatRange(ids) << "\n";
    }
    return status;
  }
  if (context.json()) {
    context.PrintJson(Json{{"token_ids", {{"first", ids.first()}, {"end", ids.end()}}},
                           {"num_inputs", appended.num_inputs}});
    return absl::OkStatus();
  }
  context.out() << "Appended "
                << FormatCount(static_cast<int64_t>(ids.end() - ids.first()), names.unit)
                << ", token_ids " << FormatRange(ids);
  if (!appended.subject.empty()) {
    context.out() << ", subject " << OneLine(appended.subject);
  }
  context.out() << ". The session now holds " << appended.num_inputs << ".\n" << std::flush;
  return absl::OkStatus();
}

}  // namespace lethe::client
