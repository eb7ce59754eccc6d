#include "tests/crash/store_victim.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include <unistd.h>

#include "audit/log/leaf.h"
#include "audit/log/merkle_tree.h"
#include "kernels/base/status_macros.h"
#include "tests/crash/crash_story.h"

namespace lethe::testing {
namespace {

constexpr int kNumLabels = 4;
// Its key seals the sessions' names.
constexpr int kRegistryNumber = 0;

std::string LabelName(int label) { return label == 0 ? "" : absl::StrCat("label-", label); }

std::string LeafOf(uint64_t change) {
  std::string leaf = absl::StrCat("record of change ", change, " ");
  leaf.resize(audit::kLogLeafBytes, 'x');
  return leaf;
}

void Share(const Inputs& inputs, SharedSession* session) {
  session->num_inputs = static_cast<uint32_t>(inputs.size());
  for (int64_t rank = 0; rank < inputs.size(); ++rank) {
    const Input& input = inputs.at(rank);
    const absl::string_view label = inputs.subject(rank);
    session->inputs[rank] = {input.token_id, input.vocab_id, static_cast<uint8_t>(input.kind),
                             static_cast<uint8_t>(input.derived_from_forgotten ? 1 : 0),
                             static_cast<uint8_t>(label.empty() ? 0 : label.back() - '0')};
  }
}

bool AreEqual(const SharedSession& a, const SharedSession& b) {
  const auto same = [](const SharedInput& x, const SharedInput& y) {
    return x.token_id == y.token_id && x.vocab_id == y.vocab_id && x.kind == y.kind &&
           x.derived == y.derived && x.label == y.label;
  };
  return a.exists == b.exists &&
         std::equal(a.inputs, a.inputs + a.num_inputs, b.inputs, b.inputs + b.num_inputs, same) &&
         std::equal(a.meta, a.meta + a.num_meta, b.meta, b.meta + b.num_meta);
}

bool AreEqual(const SharedModel& a, const SharedModel& b) {
  for (int i = 0; i < kVictimSessions; ++i) {
    if (!AreEqual(a.sessions[i], b.sessions[i])) return false;
  }
  return a.num_leaves == b.num_leaves;
}

}  // namespace

absl::Status StoreVictim::ReadSession(int number, absl::Span<const StoredRow> rows) {
  Live& live = live_[number - 1];
  SharedSession& session = found_.sessions[number - 1];
  LETHE_ASSIGN_OR_RETURN(JournalState state, JournalState::FromRows(rows));
  live.journal = std::make_unique<SessionJournal>(data_->store(), number, std::move(state));
  session.exists = !live.journal->is_empty();
  if (!session.exists) {
    return rows.empty() ? absl::OkStatus() : absl::DataLossError("inputs without a session");
  }
  LETHE_ASSIGN_OR_RETURN(const std::vector<std::string> meta, live.journal->ReadMeta());
  if (meta.size() > kVictimMetaMax + 8)
    return absl::DataLossError("more meta rows than were written");
  for (const std::string& body : meta) {
    if (std::sscanf(body.c_str(), "change %lu", &session.meta[session.num_meta++]) != 1) {
      return absl::DataLossError("a meta row of nobody's");
    }
  }
  LETHE_ASSIGN_OR_RETURN(DecodedInputs decoded, live.journal->ReadInputs());
  if (decoded.inputs.size() > kVictimInputsMax + 32) return absl::DataLossError("too many inputs");
  live.inputs = std::move(decoded.inputs);
  Share(live.inputs, &session);
  return absl::OkStatus();
}

absl::Status StoreVictim::Start() {
  LETHE_ASSIGN_OR_RETURN(data_, DataDirectory::Open(path_, "lethe.dev/audit/test",
                                                    [](const absl::Status&) { _exit(9); }));
  LETHE_ASSIGN_OR_RETURN(auto rows, data_->store()->AllRows());
  LETHE_ASSIGN_OR_RETURN(JournalState registry, JournalState::FromRows(rows[kRegistryNumber]));
  registry_ =
      std::make_unique<SessionJournal>(data_->store(), kRegistryNumber, std::move(registry));
  if (registry_->is_empty()) {
    LETHE_RETURN_IF_ERROR(registry_->Compact("registry"));
    LETHE_ASSIGN_OR_RETURN(rows, data_->store()->AllRows());
  }
  std::memset(&found_, 0, sizeof found_);
  found_.num_leaves = data_->log()->num_leaves();
  std::set<DataKeyRef> used;
  for (const auto& [number, of_session] : rows) {
    if (number < kRegistryNumber || number > kVictimSessions)
      return absl::DataLossError("rows of nobody");
    for (const StoredRow& row : of_session) used.insert(row.key);
  }
  for (int number = 1; number <= kVictimSessions; ++number) {
    LETHE_RETURN_IF_ERROR(ReadSession(number, rows[number]));
  }
  if (used.size() != data_->store()->num_keys()) {
    return absl::DataLossError("keys are left that open nothing");
  }
  LETHE_ASSIGN_OR_RETURN(const std::set<int64_t> incomplete, data_->store()->Incomplete());
  if (!incomplete.empty()) return absl::DataLossError("rows are not as their count says");
  return data_->log()->frozen();
}

absl::Status StoreVictim::Compare() {
  const bool is_next = board_->under_way && AreEqual(found_, board_->next);
  if (!is_next && !AreEqual(found_, board_->now)) {
    return absl::DataLossError(absl::StrCat(
        "neither before nor after change ", board_->change, ": ", found_.num_leaves,
        " leaves, before ", board_->now.num_leaves, ", after ", board_->next.num_leaves));
  }
  if (board_->under_way && board_->change_is_record) {
    const auto leaf = data_->log()->FindLeaf(audit::MerkleLeafHash(LeafOf(board_->change)));
    if (leaf.ok() != is_next) return absl::DataLossError("record and change do not go together");
  }
  const std::vector<std::string> keys = DataKeysIn(path_);
  for (uint32_t i = 0; i < board_->num_dead_keys; ++i) {
    const std::string dead(board_->dead_keys[i], 32);
    if (std::find(keys.begin(), keys.end(), dead) != keys.end()) {
      return absl::DataLossError("a key is there that an answered change destroyed");
    }
  }
  if (is_next) board_->now = board_->next;
  board_->under_way = false;
  board_->num_dead_keys = 0;
  ++board_->num_checked;
  return absl::OkStatus();
}

std::string StoreVictim::Body() const { return absl::StrCat("change ", board_->change); }

void StoreVictim::Announce(bool is_record) {
  board_->change_is_record = is_record;
  if (is_record) ++board_->next.num_leaves;
  board_->under_way = true;
}

absl::Status StoreVictim::AddInputs(Live* live, SharedSession* next) {
  const int64_t count = 1 + Draw(8);
  const std::string label = LabelName(static_cast<int>(Draw(kNumLabels)));
  for (int64_t i = 0; i < count; ++i) {
    live->inputs.Append(next->next_id++, static_cast<int32_t>(Draw(250)), InputKind::kAppended,
                        label);
  }
  Share(live->inputs, next);
  next->meta[next->num_meta++] = board_->change;
  Announce(false);
  return live->journal->AddInputs(live->inputs, VectorRows(), Body());
}

absl::Status StoreVictim::DrawTokens(Live* live, SharedSession* next) {
  const int64_t count = 1 + Draw(3);
  for (int64_t i = 0; i < count; ++i) {
    live->inputs.Append(next->next_id++, static_cast<int32_t>(Draw(250)), InputKind::kGenerated,
                        "");
    live->journal->NoteDrawn(live->inputs);
  }
  Share(live->inputs, next);
  Announce(false);
  return live->journal->FlushDrawn();
}

// A Forget of the label; 0: a certificate.
absl::Status StoreVictim::Record(Live* live, SharedSession* next, int label) {
  const std::vector<int64_t> ranks =
      label == 0 ? std::vector<int64_t>() : live->inputs.RanksOfSubject(LabelName(label));
  const std::vector<uint64_t> ids = live->inputs.IdsAt(ranks);
  if (label != 0 && ids.empty()) return absl::OkStatus();
  Inputs after(live->inputs);
  after.Remove(ranks);
  Share(after, next);
  if (label != 0) next->num_meta = 0;
  next->meta[next->num_meta++] = board_->change;
  Announce(true);
  const std::string leaf = LeafOf(board_->change);
  const audit::Sha256Digest leaf_hash = audit::MerkleLeafHash(leaf);
  RecordedChange change(live->journal.get());
  LETHE_RETURN_IF_ERROR(label == 0
                            ? change.PrepareDelta(Body(), leaf_hash)
                            : change.PrepareRemoval({ids, after, VectorRows(), Body()}, leaf_hash));
  LETHE_RETURN_IF_ERROR(data_->log()->Append(leaf, "body").status());
  LETHE_RETURN_IF_ERROR(change.Finish(label == 0 ? nullptr : &after));
  live->inputs = std::move(after);
  return absl::OkStatus();
}

absl::Status StoreVictim::Destroy(Live* live, SharedSession* next) {
  std::memset(next, 0, sizeof *next);
  Announce(false);
  LETHE_RETURN_IF_ERROR(live->journal->Destroy(registry_.get(), ""));
  live->inputs = Inputs();
  return absl::OkStatus();
}

absl::Status StoreVictim::Change(int index) {
  Live* const live = &live_[index];
  SharedSession* const next = &board_->next.sessions[index];
  if (!next->exists) {
    next->exists = true;
    next->next_id = 1;
    next->meta[next->num_meta++] = board_->change;
    Announce(false);
    return live->journal->Begin(Body(), "a name", registry_.get(), "");
  }
  if (next->num_inputs > kVictimInputsMax || Draw(60) == 0) return Destroy(live, next);
  if (next->num_meta > kVictimMetaMax) {
    next->num_meta = 0;
    next->meta[next->num_meta++] = board_->change;
    Announce(false);
    return live->journal->Compact(Body());
  }
  switch (Draw(6)) {
    case 0:
    case 1:
      return AddInputs(live, next);
    case 2:
      return DrawTokens(live, next);
    case 3:
      return Record(live, next, 0);
    default:
      return Record(live, next, 1 + static_cast<int>(Draw(kNumLabels - 1)));
  }
}

absl::Status StoreVictim::ChangeSomething() {
  const std::vector<std::string> before = DataKeysIn(path_);
  board_->next = board_->now;
  ++board_->change;
  LETHE_RETURN_IF_ERROR(Change(static_cast<int>(Draw(kVictimSessions))));
  const std::vector<std::string> after = DataKeysIn(path_);
  uint32_t num_dead = 0;
  for (const std::string& key : before) {
    const bool is_dead = std::find(after.begin(), after.end(), key) == after.end();
    if (is_dead && num_dead < kVictimDeadKeysMax)
      std::memcpy(board_->dead_keys[num_dead++], key.data(), 32);
  }
  board_->now = board_->next;
  board_->under_way = false;
  board_->num_dead_keys = num_dead;
  ++board_->num_answered;
  return absl::OkStatus();
}

}  // namespace lethe::testing
