// MergeAppended, ReportAppended: what `lethe append` and `lethe vectors append` say of an input that went in
// several calls.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  the calls came in order; their token_ids have no gaps.
// Rejects:   ReportAppended: the status it was given.
// Effects:   writes to the context's streams. When a later call was refused, standard error names what
//            went in before.
// Numerics:  none.
// Threads:   owner thread.
#ifndef LETHE_CLIENT_COMMANDS_APPEND_REPORT_H_
#define LETHE_CLIENT_COMMANDS_APPEND_REPORT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/commands/context.h"

#include "lethe/v1/types.pb.h"

namespace lethe::client {

// Response: AppendResponse, AppendVectorsResponse. *all covers the calls up to this one.
template <typename Response>
void MergeAppended(const Response& response, Response* all) {
  if (!all->has_token_ids()) {
    all->mutable_token_ids()->set_first(response.token_ids().first());
  }
  all->mutable_token_ids()->set_end(response.token_ids().end());
  all->set_num_inputs(response.num_inputs());
}

struct AppendNames {
  absl::string_view input;  // "text"
  absl::string_view unit;   // "token"
};

struct Appended {
  v1::TokenRange token_ids;  // first = end = 0: nothing
  int64_t num_inputs = 0;
  std::string subject;
};

absl::Status ReportAppended(Context& context, const absl::Status& status, const Appended& appended,
                            const AppendNames& names);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_APPEND_REPORT_H_
