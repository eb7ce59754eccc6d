// What a log does before it may sign: everything that is known of it, here and elsewhere, must be one history.
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/crypto/encoding.h"
#include "audit/crypto/secret.h"
#include "audit/log/audit_log_impl.h"
#include "kernels/base/crash_point.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

std::string NewTicket() {
  std::array<uint8_t, 16> bytes{};
  RandomBytes(absl::MakeSpan(bytes));
  return HexEncode(bytes);
}

}  // namespace

absl::Status AuditLog::Impl::Start() {
  MutexLock lock(&mutex_);
  const std::string vkey = WriteVerifierKey(vkey_);
  const absl::StatusOr<std::string> identity = store_->Identity();
  absl::Status status;
  if (absl::IsNotFound(identity.status())) {
    status = Create();
  } else if (!identity.ok()) {
    return identity.status();
  } else if (*identity != vkey) {
    return absl::FailedPreconditionError(
        "audit log: was written under another origin or key; start a new directory");
  } else {
    status = CheckStoredState();
  }
  if (status.ok()) status = CheckBeforeSigning();
  if (absl::IsDataLoss(status)) {
    if (frozen_.ok()) Freeze(status).IgnoreError();
    return absl::OkStatus();
  }
  return status;
}

// A new log begins with a signed head of size 0, so that every later state has one to compare with.
absl::Status AuditLog::Impl::Create() {
  if (absl::StatusOr<std::string> published = directory_->ReadHead();
      !absl::IsNotFound(published.status())) {
    if (!published.ok()) return published.status();
    return absl::DataLossError("a head is published, but the database is empty");
  }
  if (anchor_ != nullptr) {
    const absl::StatusOr<AnchorState> state = anchor_->Read();
    if (!state.ok() && !absl::IsNotFound(state.status())) return state.status();
    if (state.ok() && (state->vkey != WriteVerifierKey(vkey_) || state->tree_size > 0)) {
      return absl::DataLossError("the anchor knows a log that is not in this directory");
    }
  }
  LETHE_RETURN_IF_ERROR(store_->Begin());
  absl::Status status = store_->SetIdentity(WriteVerifierKey(vkey_));
  absl::StatusOr<std::string> head = SignHead();
  if (status.ok()) status = head.status();
  if (status.ok()) status = store_->InsertHead({0, *head});
  if (!status.ok()) {
    store_->Rollback();
    return status;
  }
  return CommitAndPublish(*head);
}

absl::Status AuditLog::Impl::CheckHead(absl::string_view note, absl::string_view what) {
  const absl::StatusOr<Checkpoint> head = OpenCheckpoint(note, vkey_);
  if (!head.ok()) {
    return absl::DataLossError(absl::StrCat(what, " head: ", head.status().message()));
  }
  if (head->tree_size > tree_.num_leaves()) {
    return absl::DataLossError(
        absl::StrCat("the stored leaves are fewer than the ", what, " head signs"));
  }
  LETHE_ASSIGN_OR_RETURN(const Sha256Digest root, tree_.RootAt(head->tree_size));
  if (root != head->root_hash) {
    return absl::DataLossError(
        absl::StrCat("the stored leaves have another root than the ", what, " head signs"));
  }
  return absl::OkStatus();
}

absl::Status AuditLog::Impl::CheckPublished() {
  const absl::StatusOr<std::string> published = directory_->ReadHead();
  // None: the process died between creating the database and publishing, which only an empty log
  // can show.
  if (absl::IsNotFound(published.status())) {
    return tree_.num_leaves() == 0 ? absl::OkStatus()
                                   : absl::DataLossError("the published head is missing");
  }
  if (!published.ok()) return published.status();
  LETHE_RETURN_IF_ERROR(CheckHead(*published, "published"));
  // The same head, with its cosignatures.
  const absl::StatusOr<Checkpoint> head = OpenCheckpoint(*published, vkey_);
  if (head.ok() && head->tree_size == tree_.num_leaves()) head_ = *published;
  return absl::OkStatus();
}

absl::Status AuditLog::Impl::CheckStoredState() {
  LETHE_ASSIGN_OR_RETURN(tree_, store_->LoadTree());
  const absl::StatusOr<StoredHead> last = store_->LastHead();
  if (absl::IsNotFound(last.status())) return absl::DataLossError("no signed head is stored");
  if (!last.ok()) return last.status();
  LETHE_RETURN_IF_ERROR(CheckHead(last->checkpoint, "last stored"));
  if (last->tree_size != tree_.num_leaves()) {
    return absl::DataLossError("leaves are stored that no head signs");
  }
  head_ = last->checkpoint;
  LETHE_RETURN_IF_ERROR(CheckPublished());
  for (const std::string& expected : options_.expected_heads) {
    LETHE_RETURN_IF_ERROR(CheckHead(expected, "expected"));
  }
  return absl::OkStatus();
}

absl::StatusOr<AnchorState> AuditLog::Impl::AnchorOfTree() {
  AnchorState state;
  state.vkey = WriteVerifierKey(vkey_);
  state.tree_size = tree_.num_leaves();
  state.root_hash = tree_.Root();
  state.ticket = ticket_;
  if (tree_.num_leaves() == 0) return state;
  const uint64_t last = tree_.num_leaves() - 1;
  LETHE_ASSIGN_OR_RETURN(state.leaf, store_->Leaf(last));
  const absl::StatusOr<std::string> body = store_->Body(last);
  if (body.ok()) state.body = *body;
  return state;
}

// Either this very head, or the next one, which the anchor's leaf makes.
absl::Status AuditLog::Impl::CheckAnchoredHead(const AnchorState& state) {
  const uint64_t num_leaves = tree_.num_leaves();
  if (state.tree_size < num_leaves) {
    return absl::DataLossError(absl::StrCat(
        "the anchor ", anchor_->path(), " knows ", state.tree_size,
        " leaves and is older than the log of ", num_leaves, ": is --erasure-ledger right?"));
  }
  if (state.tree_size > num_leaves + 1) {
    return absl::DataLossError(absl::StrCat(num_leaves, " leaves are stored, the anchor knows ",
                                            state.tree_size, ": this is an older copy"));
  }
  MerkleTree completed = tree_;
  if (state.tree_size == num_leaves + 1) completed.Append(MerkleLeafHash(state.leaf));
  if (completed.Root() != state.root_hash) {
    return absl::DataLossError("the anchor knows another root of this size: this is a fork");
  }
  return absl::OkStatus();
}

// From here on a copy of this directory that was made earlier is out of date, whatever its size.
absl::Status AuditLog::Impl::TakeTicket(const AnchorState& state) {
  AnchorState next = state;
  next.ticket = NewTicket();
  next.previous_ticket = state.ticket;
  LETHE_RETURN_IF_ERROR(anchor_->Write(next));
  CrashPoint("an anchor has two tickets");
  LETHE_RETURN_IF_ERROR(directory_->WriteTicket(next.ticket));
  CrashPoint("a ticket is written");
  next.previous_ticket.clear();
  LETHE_RETURN_IF_ERROR(anchor_->Write(next));
  ticket_ = next.ticket;
  return absl::OkStatus();
}

absl::Status AuditLog::Impl::CheckAnchor() {
  absl::StatusOr<AnchorState> state = anchor_->Read();
  if (!state.ok() && !absl::IsNotFound(state.status())) return state.status();
  if (!state.ok()) {
    // A log without leaves has nothing that could be forked.
    if (tree_.num_leaves() > 0 && !options_.adopt) {
      return absl::DataLossError(absl::StrCat(
          "the anchor is missing: nobody knows whether this is the newest copy; it was "
          "looked for at ",
          anchor_->path(), ": is --erasure-ledger right?"));
    }
    LETHE_ASSIGN_OR_RETURN(state, AnchorOfTree());
    return TakeTicket(*state);
  }
  if (state->vkey != WriteVerifierKey(vkey_)) {
    return absl::DataLossError(absl::StrCat("the anchor ", anchor_->path(),
                                            " belongs to another log: is --erasure-ledger right?"));
  }
  const absl::StatusOr<std::string> ticket = directory_->ReadTicket();
  const std::string held = ticket.ok() ? *ticket : "";
  const bool is_current = held == state->ticket;
  const bool was_exchanged = !state->previous_ticket.empty() && held == state->previous_ticket;
  if (!is_current && !was_exchanged && tree_.num_leaves() + state->tree_size > 0) {
    return absl::DataLossError(
        "this directory holds an old ticket: another copy of it was started since it was made");
  }
  LETHE_RETURN_IF_ERROR(CheckAnchoredHead(*state));
  LETHE_RETURN_IF_ERROR(TakeTicket(*state));
  if (state->tree_size == tree_.num_leaves()) return absl::OkStatus();
  const absl::Status completed =
      AppendRow({tree_.num_leaves(), state->leaf, MerkleLeafHash(state->leaf), state->body});
  // Stored, but for a witness that does not answer.
  return frozen_.ok() && tree_.num_leaves() == state->tree_size ? absl::OkStatus() : completed;
}

absl::Status AuditLog::Impl::CheckBeforeSigning() {
  if (anchor_ != nullptr) LETHE_RETURN_IF_ERROR(CheckAnchor());
  if (options_.witness != nullptr && !head_is_cosigned_) {
    // An unreachable witness is no reason not to start: what is recorded can be read.
    const absl::Status cosigned = Cosign();
    if (!cosigned.ok() && !absl::IsUnavailable(cosigned)) return cosigned;
  }
  const absl::StatusOr<std::string> published = directory_->ReadHead();
  if (published.ok() && *published == head_) return absl::OkStatus();
  return MayShowHead().ok() ? directory_->PublishHead(head_) : absl::OkStatus();
}

}  // namespace lethe::audit
