#include "server/vector_session/vector_commands.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/session_registry/durable_entry.h"
#include "server/session_registry/page_token.h"

namespace lethe {
namespace {

// A page fits into the 4 MiB that a gRPC client takes unless told otherwise.
constexpr int64_t kPageNumbers = (int64_t{1} << 20) / static_cast<int64_t>(sizeof(double));

absl::Status WithAppendReason(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return WithErrorInfo(status, {"TOO_MANY_VECTORS", {{"field", "keys"}}});
    case absl::StatusCode::kFailedPrecondition:
      return WithErrorInfo(status, {"RIDGE_TOO_SMALL", {{"field", "keys"}}});
    default:
      return WithDefaultReason(status, "INVALID_FIELD");
  }
}

// Inputs that were not stored go again.
void TakeBack(const TokenIdRange& token_ids, VectorSession* session) {
  absl::StatusOr<std::unique_ptr<AnyStagedForget>> staged = session->Stage(
      ForgetSelector::Ranges({token_ids}), DerivedPolicy::kForgetDerived, {}, std::nullopt);
  LETHE_CHECK(staged.ok() && session->CommitStaged(*std::move(staged)).ok());
}

}  // namespace

absl::StatusOr<AppendReceipt> AppendVectors(const AppendVectorsCommand& command, const Call& call,
                                            ComputeScheduler* scheduler,
                                            const std::shared_ptr<SessionEntry>& entry) {
  FairMutexLock lock(&entry->mutex);
  LETHE_ASSIGN_OR_RETURN(const auto answer, entry->requests.Find<AppendAnswer>(command.request));
  if (answer != nullptr) return answer->receipt;
  LETHE_ASSIGN_OR_RETURN(VectorSession * session, entry->LiveVectorSession());
  LETHE_RETURN_IF_ERROR(entry->AdmitWriter(command.subject).status());
  LETHE_ASSIGN_OR_RETURN(const ComputeSlot slot, scheduler->Acquire(call));
  const absl::StatusOr<TokenIdRange> token_ids =
      session->Append(command.keys, command.values, command.subject);
  if (!token_ids.ok()) return WithAppendReason(token_ids.status());
  const AppendReceipt receipt = {*token_ids, session->num_tokens()};
  auto stored = std::make_shared<AppendAnswer>(receipt);
  if (const absl::Status status = StoreInputs(command.request, *stored, entry.get());
      !status.ok()) {
    TakeBack(*token_ids, session);
    return status;
  }
  entry->requests.Remember(command.request, std::move(stored));
  entry->Publish();
  return receipt;
}

absl::StatusOr<VectorReads> ReadVectors(absl::Span<const double> queries, const Call& call,
                                        ComputeScheduler* scheduler,
                                        const std::shared_ptr<SessionEntry>& entry) {
  FairMutexLock lock(&entry->mutex);
  LETHE_ASSIGN_OR_RETURN(VectorSession * session, entry->LiveVectorSession());
  LETHE_ASSIGN_OR_RETURN(const ComputeSlot slot, scheduler->Acquire(call));
  absl::StatusOr<VectorReads> reads = session->Read(queries);
  if (absl::IsFailedPrecondition(reads.status())) {
    return WithErrorInfo(reads.status(), {"EMPTY_SESSION", {{"field", "session_id"}}});
  }
  if (!reads.ok()) return WithDefaultReason(reads.status(), "INVALID_FIELD");
  return reads;
}

absl::StatusOr<VectorPage> ListVectors(int64_t page_size, const std::string& page_token,
                                       const std::shared_ptr<SessionEntry>& entry) {
  FairMutexLock lock(&entry->mutex);
  LETHE_ASSIGN_OR_RETURN(VectorSession * session, entry->LiveVectorSession());
  const std::string scope = absl::StrCat("ListVectors ", entry->session_id);
  int64_t rank = 0;
  if (!page_token.empty()) {
    LETHE_ASSIGN_OR_RETURN(const PageToken token, ParsePageToken(scope, page_token));
    if (token.epoch != entry->mark.epoch) return HistoryChangedError();
    rank = static_cast<int64_t>(token.position);
  }
  const int64_t key_dim = session->options().params.key_dim;
  const int64_t value_dim = session->options().value_dim;
  const int64_t rows =
      std::min(page_size, std::max<int64_t>(1, kPageNumbers / (key_dim + value_dim)));
  const int64_t end = std::min(session->num_tokens(), rank + rows);
  VectorPage page;
  for (; rank < end; ++rank) {
    const absl::Span<const double> key = session->KeyOf(rank);
    const absl::Span<const double> value = session->ValueOf(rank);
    page.rows.push_back({session->inputs().at(rank).token_id,
                         std::string(session->inputs().subject(rank)),
                         {key.begin(), key.end()},
                         {value.begin(), value.end()}});
  }
  if (end < session->num_tokens()) {
    page.next_page_token =
        WritePageToken(scope, {entry->mark.epoch, 0, static_cast<uint64_t>(end)});
  }
  return page;
}

}  // namespace lethe
