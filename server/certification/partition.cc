#include "server/certification/partition.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "kernels/gram/gram.h"
#include "server/certification/sv_heads.h"
#include "server/error/error_info.h"
#include "server/session_registry/page_token.h"

namespace lethe {
namespace {

absl::StatusOr<SvHead> FindHead(const AnySession& session, const std::string& name) {
  for (SvHead& head : session.SvHeads()) {
    if (name.empty() || head.name == name) return std::move(head);
  }
  return WithErrorInfo(absl::NotFoundError("head: no such support-vector head; Certify names them"),
                       {"HEAD_NOT_FOUND", {{"field", "head"}}});
}

// A key as f64, which gives the same kernel values as f32.
std::vector<double> KeyOf(const SvHead& head, int64_t rank) {
  const auto dim = static_cast<size_t>(head.params->key_dim);
  return std::visit(
      [&](const auto keys) {
        const auto key = keys.subspan(static_cast<size_t>(rank) * dim, dim);
        return std::vector<double>(key.begin(), key.end());
      },
      head.keys);
}

// The support's keys side by side, so that one Gram row covers them.
struct Support {
  std::vector<double> keys;
  std::vector<double> a;
  explicit Support(const SvHead& head) {
    const svdd::Solution& solution = *head.solution;
    for (int64_t rank = 0; rank < solution.num_keys; ++rank) {
      const double value = solution.a[static_cast<size_t>(rank)];
      if (value == 0.0) continue;
      const std::vector<double> key = KeyOf(head, rank);
      keys.insert(keys.end(), key.begin(), key.end());
      a.push_back(value);
    }
  }
};

double Gradient(const SvHead& head, const Support& support, int64_t rank) {
  const svdd::Solution& solution = *head.solution;
  std::vector<double> row(support.a.size());
  GramRow(KeyOf(head, rank), support.keys, head.params->sigma, absl::MakeSpan(row));
  double sum = 0.0;
  for (size_t i = 0; i < row.size(); ++i) sum += row[i] * support.a[i];
  sum += head.params->ridge * solution.a[static_cast<size_t>(rank)];
  return solution.rho - (1.0 - 2.0 * sum / solution.mass);
}

}  // namespace

absl::StatusOr<PartitionPage> ListPartition(const PartitionQuery& query, const Call& call,
                                            ComputeScheduler* scheduler,
                                            const std::shared_ptr<SessionEntry>& entry) {
  FairMutexLock lock(&entry->mutex);
  LETHE_ASSIGN_OR_RETURN(const ComputeSlot slot, scheduler->Acquire(call));
  LETHE_ASSIGN_OR_RETURN(const AnySession* session, entry->LiveSession());
  LETHE_ASSIGN_OR_RETURN(const SvHead head, FindHead(*session, query.head));
  const svdd::Solution& solution = *head.solution;
  const std::string scope = absl::StrCat("ListPartition ", entry->session_id, " ", head.name);
  const auto num_inputs = static_cast<uint64_t>(session->num_tokens());
  int64_t rank = 0;
  if (!query.page_token.empty()) {
    LETHE_ASSIGN_OR_RETURN(const PageToken token, ParsePageToken(scope, query.page_token));
    if (token.epoch != entry->mark.epoch || token.length != num_inputs) {
      return HistoryChangedError();
    }
    rank = static_cast<int64_t>(token.position);
  }
  PartitionPage page;
  page.head = head.name;
  page.rho = solution.rho;
  page.mass = solution.mass;
  const Support support(head);
  const int64_t end = std::min(solution.num_keys, rank + query.page_size);
  for (; rank < end; ++rank) {
    const auto index = static_cast<size_t>(rank);
    page.rows.push_back({session->inputs().at(rank).token_id, solution.classes[index],
                         solution.a[index] / solution.mass, Gradient(head, support, rank)});
  }
  if (end < solution.num_keys) {
    page.next_page_token =
        WritePageToken(scope, {entry->mark.epoch, num_inputs, static_cast<uint64_t>(end)});
  }
  return page;
}

}  // namespace lethe
