// How a log signs: anchor, signature, commit, cosignature, publication, in this order.
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/log/audit_log_impl.h"
#include "audit/log/leaf.h"
#include "audit/log/tlog_proof.h"
#include "kernels/base/crash_point.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {

absl::Status AuditLog::Impl::Freeze(const absl::Status& cause) {
  frozen_ = absl::DataLossError(absl::StrCat("audit log is frozen: ", cause.message()));
  return frozen_;
}

// Signs the present tree, and verifies the own signature: a fault in the signer must not leave this
// process.
absl::StatusOr<std::string> AuditLog::Impl::SignHead() {
  const Checkpoint checkpoint{vkey_.name, tree_.num_leaves(), tree_.Root()};
  std::string note = SignCheckpoint(checkpoint, *options_.key);
  if (!OpenCheckpoint(note, vkey_).ok()) {
    return absl::InternalError("audit log: the own signature does not verify");
  }
  return note;
}

// Within a transaction: leaf and body, the tree (recomputed from the rows when the size is a power
// of two), the anchor, the head. The rows come first: a full disk shows before the anchor is bound to them.
absl::StatusOr<std::string> AuditLog::Impl::Persist(const LeafRow& row) {
  LETHE_RETURN_IF_ERROR(store_->InsertLeaf(row));
  tree_.Append(row.leaf_hash);
  if (std::has_single_bit(tree_.num_leaves())) {
    LETHE_ASSIGN_OR_RETURN(const MerkleTree stored, store_->LoadTree());
    if (stored.num_leaves() != tree_.num_leaves() || stored.Root() != tree_.Root()) {
      return absl::DataLossError("the stored leaves have another root than the tree in memory");
    }
  }
  if (anchor_ != nullptr) {
    unsettled_ = row.leaf_hash;
    LETHE_RETURN_IF_ERROR(
        anchor_->Write({WriteVerifierKey(vkey_), tree_.num_leaves(), tree_.Root(), ticket_, "",
                        std::string(row.leaf), std::string(row.body)}));
    CrashPoint("a leaf is anchored");
  }
  LETHE_ASSIGN_OR_RETURN(std::string head, SignHead());
  LETHE_RETURN_IF_ERROR(store_->InsertHead({tree_.num_leaves(), head}));
  return head;
}

// Nothing of the leaf may come back at the next start, since the caller is told that it is not there.
absl::Status AuditLog::Impl::TakeBack(uint64_t num_leaves, const absl::Status& cause) {
  store_->Rollback();
  tree_.Truncate(num_leaves);
  if (unsettled_.has_value()) {
    const absl::StatusOr<AnchorState> state = AnchorOfTree();
    const absl::Status restored = state.ok() ? anchor_->Write(*state) : state.status();
    if (!restored.ok()) return Freeze(restored);
    unsettled_.reset();
  }
  return absl::IsDataLoss(cause) ? Freeze(cause) : cause;
}

absl::Status AuditLog::Impl::CommitAndPublish(absl::string_view head) {
  // After a failed commit nobody knows what is on disk: only a new start, which reads it, may go
  // on.
  if (absl::Status status = store_->Commit(); !status.ok()) return Freeze(status);
  unsettled_.reset();
  CrashPoint("a leaf is committed");
  head_ = std::string(head);
  head_is_cosigned_ = false;
  return CosignAndPublish();
}

absl::Status AuditLog::Impl::Cosign() {
  if (tree_.num_leaves() == 0) return absl::OkStatus();  // nothing to witness
  // Called back from within Cosign, under the lock.
  const MerkleTree* const tree = &tree_;
  const HeadToCosign head{head_, tree_.num_leaves(), [tree](uint64_t old_size) {
                            return tree->ConsistencyProof(old_size, tree->num_leaves());
                          }};
  LETHE_ASSIGN_OR_RETURN(const std::vector<NoteSignature> cosignatures,
                         options_.witness->Cosign(head));
  LETHE_ASSIGN_OR_RETURN(SignedNote note, ParseNote(head_));
  note.signatures.resize(1);  // our own, which is the first; older cosignatures are replaced
  note.signatures.insert(note.signatures.end(), cosignatures.begin(), cosignatures.end());
  head_ = WriteNote(note);
  head_is_cosigned_ = true;
  return absl::OkStatus();
}

absl::Status AuditLog::Impl::CosignAndPublish() {
  if (options_.witness != nullptr) {
    const absl::Status cosigned = Cosign();
    if (absl::IsDataLoss(cosigned)) return Freeze(cosigned);
    if (!cosigned.ok() && options_.witness_required) return cosigned;
  }
  if (absl::Status status = directory_->PublishHead(head_); !status.ok()) return Freeze(status);
  return absl::OkStatus();
}

absl::Status AuditLog::Impl::MayShowHead() const {
  if (options_.witness == nullptr || !options_.witness_required || head_is_cosigned_ ||
      tree_.num_leaves() == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      "audit log: the newest head lacks the cosignatures of its witnesses");
}

absl::Status AuditLog::Impl::AppendRow(const LeafRow& row) {
  LETHE_RETURN_IF_ERROR(store_->Begin());
  absl::StatusOr<std::string> head = Persist(row);
  if (!head.ok()) return TakeBack(row.leaf_index, head.status());
  // A commit that fails is taken back in memory, and may be whole on disk.
  unsettled_ = row.leaf_hash;
  if (FaultActive(Fault::kFailedCommitUndone)) unsettled_.reset();
  return CommitAndPublish(*head);
}

absl::StatusOr<AppendedLeaf> AuditLog::Impl::Append(absl::string_view leaf,
                                                    absl::string_view body) {
  if (leaf.size() != kLogLeafBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("leaf: got ", leaf.size(), " bytes, want ", kLogLeafBytes));
  }
  MutexLock lock(&mutex_);
  if (!frozen_.ok()) return frozen_;
  // Before anything is done: no record is made that could not be handed out.
  if (!MayShowHead().ok()) {
    LETHE_RETURN_IF_ERROR(CosignAndPublish());
  } else if (options_.witness != nullptr && options_.witness_required) {
    LETHE_RETURN_IF_ERROR(options_.witness->CheckIsThere());
  }
  AppendedLeaf appended{tree_.num_leaves(), MerkleLeafHash(leaf), ""};
  LETHE_RETURN_IF_ERROR(AppendRow({appended.leaf_index, leaf, appended.leaf_hash, body}));
  LETHE_ASSIGN_OR_RETURN(appended.proof_file, MakeProofFile(appended.leaf_index));
  return appended;
}

absl::StatusOr<std::string> AuditLog::Impl::MakeProofFile(uint64_t leaf_index) const {
  LETHE_RETURN_IF_ERROR(MayShowHead());
  TlogProof proof;
  proof.leaf_index = leaf_index;
  LETHE_ASSIGN_OR_RETURN(proof.hashes, tree_.InclusionProof(leaf_index, tree_.num_leaves()));
  proof.checkpoint = head_;
  return WriteTlogProof(proof);
}

}  // namespace lethe::audit
