#include "server/certification/removal.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/base/check.h"
#include "server/certification/session_methods.h"
#include "server/certification/sv_heads.h"

namespace lethe {
namespace {

std::vector<uint64_t> Without(const std::vector<uint64_t>& ids,
                              const std::vector<uint64_t>& removed) {
  std::vector<uint64_t> rest;
  std::set_difference(ids.begin(), ids.end(), removed.begin(), removed.end(),
                      std::back_inserter(rest));
  return rest;
}

}  // namespace

audit::RecordDraft DraftRemoval(audit::RecordDraft start, const SessionEntry& entry,
                                const Inputs& inputs, std::vector<uint64_t> removed,
                                const AnyStagedForget& staged) {
  const ForgetResult& result = staged.result();
  audit::RecordDraft draft = std::move(start);
  draft.digest_before = result.digest_before;
  draft.digest_after = result.digest_after;
  draft.forgotten = std::move(removed);
  draft.retained = Without(RetainedIds(inputs), draft.forgotten);
  draft.inputs_evicted = draft.kind == audit::RecordKind::kSelect || HasSelected(entry);
  draft.layers = LayerReports(entry, result.way);
  for (const SvHead& head : staged.SvHeads()) {
    draft.memories.push_back(DraftHead(head, draft.retained));
  }
  draft.stores = {{"session-memory", "replaced"}};
  if (entry.model != nullptr) draft.stores.push_back({"session-snapshots", "destroyed"});
  return draft;
}

RecordRef CommitRemoval(const audit::FinishedRecord& record, const audit::RecordDraft& draft,
                        std::unique_ptr<AnyStagedForget> staged, SessionEntry* entry) {
  LETHE_CHECK(entry->session->CommitStaged(std::move(staged)).ok());
  entry->mark.epoch += 1;
  if (draft.kind == audit::RecordKind::kForget) {
    entry->mark.num_forgotten += static_cast<int64_t>(draft.forgotten.size());
  }
  entry->requests.AfterForget(ToRanges(draft.forgotten));
  entry->record_refs.push_back(
      MakeRecordRef(record, draft.kind, entry->mark, entry->session->num_tokens()));
  return entry->record_refs.back();
}

}  // namespace lethe
