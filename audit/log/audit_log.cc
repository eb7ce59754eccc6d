#include "audit/log/audit_log.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/log/leaf.h"
#include "audit/log/log_directory.h"
#include "audit/log/log_store.h"
#include "audit/log/merkle_tree.h"
#include "audit/log/tlog_proof.h"
#include "kernels/base/crash_point.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {

class AuditLog::Impl {
 public:
  Impl(const AuditLogOptions& options, VerifierKey vkey, std::unique_ptr<LogDirectory> directory,
       std::unique_ptr<LogStore> store)
      : key_(options.key),
        vkey_(std::move(vkey)),
        directory_(std::move(directory)),
        store_(std::move(store)) {}

  absl::Status Start() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<AppendedLeaf> Append(absl::string_view leaf, absl::string_view body)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::string> ProofFile(uint64_t leaf_index) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Recheck() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status frozen() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return frozen_;
  }
  uint64_t num_leaves() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return tree_.num_leaves();
  }
  absl::StatusOr<std::string> SignedCheckpoint() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (!frozen_.ok()) return frozen_;
    return head_;
  }
  absl::StatusOr<std::vector<Sha256Digest>> ConsistencyProof(uint64_t old_size, uint64_t new_size)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    if (!frozen_.ok()) return frozen_;
    return tree_.ConsistencyProof(old_size, new_size);
  }
  absl::StatusOr<std::string> Leaf(uint64_t leaf_index) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return store_->Leaf(leaf_index);
  }
  absl::StatusOr<uint64_t> FindLeaf(const Sha256Digest& leaf_hash) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return store_->FindLeaf(leaf_hash);
  }
  absl::StatusOr<std::string> Body(const Sha256Digest& leaf_hash) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    LETHE_ASSIGN_OR_RETURN(const uint64_t leaf_index, store_->FindLeaf(leaf_hash));
    return store_->Body(leaf_index);
  }
  absl::Status EraseBody(const Sha256Digest& leaf_hash) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    LETHE_ASSIGN_OR_RETURN(const uint64_t leaf_index, store_->FindLeaf(leaf_hash));
    return store_->EraseBody(leaf_index);
  }
  const VerifierKey& verifier_key() const { return vkey_; }

 private:
  absl::Status Create() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckHead(absl::string_view note, absl::string_view what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckStoredState() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> SignHead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> Persist(const LeafRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CommitAndPublish(absl::string_view head) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Freeze(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> MakeProofFile(uint64_t leaf_index) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const Ed25519PrivateKey> key_;
  const VerifierKey vkey_;
  const std::unique_ptr<LogDirectory> directory_;  // outlives the store: it holds the lock
  const std::unique_ptr<LogStore> store_;
  Mutex mutex_;
  MerkleTree tree_ ABSL_GUARDED_BY(mutex_);
  std::string head_ ABSL_GUARDED_BY(mutex_);
  absl::Status frozen_ ABSL_GUARDED_BY(mutex_);
};

absl::Status AuditLog::Impl::Freeze(const absl::Status& cause) {
  frozen_ = absl::DataLossError(absl::StrCat("audit log is frozen: ", cause.message()));
  return frozen_;
}

absl::Status AuditLog::Impl::Start() {
  MutexLock lock(&mutex_);
  const std::string vkey = WriteVerifierKey(vkey_);
  const absl::StatusOr<std::string> identity = store_->Identity();
  if (absl::IsNotFound(identity.status())) return Create();
  if (!identity.ok()) return identity.status();
  if (*identity != vkey) {
    return absl::FailedPreconditionError(
        "audit log: was written under another origin or key; start a new directory");
  }
  if (absl::Status status = CheckStoredState(); !status.ok()) {
    if (!absl::IsDataLoss(status)) return status;
    Freeze(status).IgnoreError();
  }
  return absl::OkStatus();
}

// A new log begins with a signed head of size 0, so that every later state has one to compare with.
absl::Status AuditLog::Impl::Create() {
  if (absl::StatusOr<std::string> published = directory_->ReadHead();
      !absl::IsNotFound(published.status())) {
    if (!published.ok()) return published.status();
    Freeze(absl::DataLossError("a head is published, but the database is empty")).IgnoreError();
    return absl::OkStatus();
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

absl::Status AuditLog::Impl::CheckStoredState() {
  LETHE_ASSIGN_OR_RETURN(tree_, store_->LoadTree());
  const absl::StatusOr<StoredHead> last = store_->LastHead();
  if (absl::IsNotFound(last.status())) return absl::DataLossError("no signed head is stored");
  if (!last.ok()) return last.status();
  LETHE_RETURN_IF_ERROR(CheckHead(last->checkpoint, "last stored"));
  if (last->tree_size != tree_.num_leaves()) {
    return absl::DataLossError("leaves are stored that no head signs");
  }
  const absl::StatusOr<std::string> published = directory_->ReadHead();
  if (absl::IsUnavailable(published.status())) return published.status();
  // None: the process died between creating the database and publishing, which only an empty log
  // can show.
  if (published.ok()) {
    LETHE_RETURN_IF_ERROR(CheckHead(*published, "published"));
  } else if (tree_.num_leaves() > 0) {
    return absl::DataLossError("the published head is missing");
  }
  head_ = last->checkpoint;
  if (!published.ok() || *published != head_) return directory_->PublishHead(head_);
  return absl::OkStatus();
}

// Signs the present tree, and verifies the own signature: a fault in the signer must not leave this
// process.
absl::StatusOr<std::string> AuditLog::Impl::SignHead() {
  const Checkpoint checkpoint{vkey_.name, tree_.num_leaves(), tree_.Root()};
  std::string note = SignCheckpoint(checkpoint, *key_);
  if (!OpenCheckpoint(note, vkey_).ok()) {
    return absl::InternalError("audit log: the own signature does not verify");
  }
  return note;
}

// Within a transaction: leaf and body, the tree (recomputed from the rows when the size is a power
// of two), the head.
absl::StatusOr<std::string> AuditLog::Impl::Persist(const LeafRow& row) {
  LETHE_RETURN_IF_ERROR(store_->InsertLeaf(row));
  tree_.Append(row.leaf_hash);
  if (std::has_single_bit(tree_.num_leaves())) {
    LETHE_ASSIGN_OR_RETURN(const MerkleTree stored, store_->LoadTree());
    if (stored.num_leaves() != tree_.num_leaves() || stored.Root() != tree_.Root()) {
      return absl::DataLossError("the stored leaves have another root than the tree in memory");
    }
  }
  LETHE_ASSIGN_OR_RETURN(std::string head, SignHead());
  LETHE_RETURN_IF_ERROR(store_->InsertHead({tree_.num_leaves(), head}));
  return head;
}

absl::Status AuditLog::Impl::CommitAndPublish(absl::string_view head) {
  // After a failed commit nobody knows what is on disk: only a new start, which reads it, may go
  // on.
  if (absl::Status status = store_->Commit(); !status.ok()) return Freeze(status);
  CrashPoint("a leaf is committed");
  head_ = std::string(head);
  if (absl::Status status = directory_->PublishHead(head_); !status.ok()) return Freeze(status);
  return absl::OkStatus();
}

absl::StatusOr<AppendedLeaf> AuditLog::Impl::Append(absl::string_view leaf,
                                                    absl::string_view body) {
  if (leaf.size() != kLogLeafBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("leaf: got ", leaf.size(), " bytes, want ", kLogLeafBytes));
  }
  MutexLock lock(&mutex_);
  if (!frozen_.ok()) return frozen_;
  AppendedLeaf appended{tree_.num_leaves(), MerkleLeafHash(leaf), ""};
  LETHE_RETURN_IF_ERROR(store_->Begin());
  absl::StatusOr<std::string> head = Persist({appended.leaf_index, leaf, appended.leaf_hash, body});
  if (!head.ok()) {
    store_->Rollback();
    tree_.Truncate(appended.leaf_index);
    return absl::IsDataLoss(head.status()) ? Freeze(head.status()) : head.status();
  }
  LETHE_RETURN_IF_ERROR(CommitAndPublish(*head));
  LETHE_ASSIGN_OR_RETURN(appended.proof_file, MakeProofFile(appended.leaf_index));
  return appended;
}

absl::StatusOr<std::string> AuditLog::Impl::MakeProofFile(uint64_t leaf_index) const {
  TlogProof proof;
  proof.leaf_index = leaf_index;
  LETHE_ASSIGN_OR_RETURN(proof.hashes, tree_.InclusionProof(leaf_index, tree_.num_leaves()));
  proof.checkpoint = head_;
  return WriteTlogProof(proof);
}

absl::StatusOr<std::string> AuditLog::Impl::ProofFile(uint64_t leaf_index) {
  MutexLock lock(&mutex_);
  if (!frozen_.ok()) return frozen_;
  return MakeProofFile(leaf_index);
}

absl::Status AuditLog::Impl::Recheck() {
  MutexLock lock(&mutex_);
  if (!frozen_.ok()) return frozen_;
  absl::Status status = CheckStoredState();
  return absl::IsDataLoss(status) ? Freeze(status) : status;
}

AuditLog::AuditLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AuditLog::~AuditLog() = default;

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const AuditLogOptions& options) {
  if (options.key == nullptr) return absl::InvalidArgumentError("key: the log's key is missing");
  LETHE_ASSIGN_OR_RETURN(VerifierKey vkey,
                         MakeVerifierKey(options.origin, options.key->public_key()));
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<LogDirectory> directory,
                         LogDirectory::Lock(options.directory));
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<LogStore> store,
                         LogStore::Open(directory->database_path()));
  auto impl =
      std::make_unique<Impl>(options, std::move(vkey), std::move(directory), std::move(store));
  LETHE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(impl)));
}

absl::StatusOr<AppendedLeaf> AuditLog::Append(absl::string_view leaf, absl::string_view body) {
  return impl_->Append(leaf, body);
}
absl::Status AuditLog::frozen() const { return impl_->frozen(); }
uint64_t AuditLog::num_leaves() const { return impl_->num_leaves(); }
VerifierKey AuditLog::verifier_key() const { return impl_->verifier_key(); }
absl::StatusOr<std::string> AuditLog::SignedCheckpoint() const { return impl_->SignedCheckpoint(); }
absl::StatusOr<std::string> AuditLog::ProofFile(uint64_t leaf_index) const {
  return impl_->ProofFile(leaf_index);
}
absl::StatusOr<std::vector<Sha256Digest>> AuditLog::ConsistencyProof(uint64_t old_size,
                                                                     uint64_t new_size) const {
  return impl_->ConsistencyProof(old_size, new_size);
}
absl::StatusOr<std::string> AuditLog::Leaf(uint64_t leaf_index) const {
  return impl_->Leaf(leaf_index);
}
absl::StatusOr<uint64_t> AuditLog::FindLeaf(const Sha256Digest& leaf_hash) const {
  return impl_->FindLeaf(leaf_hash);
}
absl::StatusOr<std::string> AuditLog::Body(const Sha256Digest& leaf_hash) const {
  return impl_->Body(leaf_hash);
}
absl::Status AuditLog::EraseBody(const Sha256Digest& leaf_hash) {
  return impl_->EraseBody(leaf_hash);
}
absl::Status AuditLog::Recheck() { return impl_->Recheck(); }

}  // namespace lethe::audit
