#include "audit/log/audit_log.h"

#include <utility>

#include "audit/log/audit_log_impl.h"
#include "audit/log/closed_log.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {

AuditLog::Impl::Impl(const AuditLogOptions& options, VerifierKey vkey,
                     std::unique_ptr<LogDirectory> directory, std::unique_ptr<LogStore> store,
                     std::unique_ptr<LogAnchor> anchor)
    : options_(options),
      vkey_(std::move(vkey)),
      directory_(std::move(directory)),
      store_(std::move(store)),
      anchor_(std::move(anchor)) {}

absl::Status AuditLog::Impl::frozen() {
  MutexLock lock(&mutex_);
  return frozen_;
}

uint64_t AuditLog::Impl::num_leaves() {
  MutexLock lock(&mutex_);
  return tree_.num_leaves();
}

absl::StatusOr<std::string> AuditLog::Impl::SignedCheckpoint() {
  MutexLock lock(&mutex_);
  if (!frozen_.ok()) return frozen_;
  LETHE_RETURN_IF_ERROR(MayShowHead());
  return head_;
}

absl::StatusOr<std::vector<Sha256Digest>> AuditLog::Impl::ConsistencyProof(uint64_t old_size,
                                                                           uint64_t new_size) {
  MutexLock lock(&mutex_);
  if (!frozen_.ok()) return frozen_;
  return tree_.ConsistencyProof(old_size, new_size);
}

absl::StatusOr<std::string> AuditLog::Impl::Leaf(uint64_t leaf_index) {
  MutexLock lock(&mutex_);
  return store_->Leaf(leaf_index);
}

absl::StatusOr<uint64_t> AuditLog::Impl::FindLeaf(const Sha256Digest& leaf_hash) {
  MutexLock lock(&mutex_);
  if (unsettled_ == leaf_hash) return frozen_;
  absl::StatusOr<uint64_t> found = store_->FindLeaf(leaf_hash);
  for (const std::shared_ptr<ClosedLog>& log : options_.predecessors) {
    if (!absl::IsNotFound(found.status())) break;
    found = log->FindLeaf(leaf_hash);
  }
  return found;
}

absl::StatusOr<std::string> AuditLog::Impl::Body(const Sha256Digest& leaf_hash) {
  MutexLock lock(&mutex_);
  const absl::StatusOr<uint64_t> here = store_->FindLeaf(leaf_hash);
  if (here.ok()) return store_->Body(*here);
  if (!absl::IsNotFound(here.status())) return here.status();
  for (const std::shared_ptr<ClosedLog>& log : options_.predecessors) {
    const absl::StatusOr<uint64_t> found = log->FindLeaf(leaf_hash);
    if (found.ok()) return log->Body(*found);
  }
  return here.status();
}

absl::Status AuditLog::Impl::EraseBody(const Sha256Digest& leaf_hash) {
  MutexLock lock(&mutex_);
  LETHE_ASSIGN_OR_RETURN(const uint64_t leaf_index, store_->FindLeaf(leaf_hash));
  LETHE_RETURN_IF_ERROR(store_->EraseBody(leaf_index));
  if (anchor_ == nullptr || leaf_index + 1 != tree_.num_leaves() || !frozen_.ok()) {
    return absl::OkStatus();
  }
  LETHE_ASSIGN_OR_RETURN(const AnchorState state, AnchorOfTree());
  return anchor_->Write(state);
}

absl::StatusOr<std::string> AuditLog::Impl::ProofFile(uint64_t leaf_index) {
  MutexLock lock(&mutex_);
  if (!frozen_.ok()) return frozen_;
  return MakeProofFile(leaf_index);
}

absl::StatusOr<std::string> AuditLog::Impl::ProofFile(const Sha256Digest& leaf_hash) {
  MutexLock lock(&mutex_);
  const absl::StatusOr<uint64_t> here = store_->FindLeaf(leaf_hash);
  if (here.ok()) return frozen_.ok() ? MakeProofFile(*here) : frozen_;
  if (!absl::IsNotFound(here.status())) return here.status();
  for (const std::shared_ptr<ClosedLog>& log : options_.predecessors) {
    const absl::StatusOr<uint64_t> found = log->FindLeaf(leaf_hash);
    if (found.ok()) return log->ProofFile(*found);
  }
  return here.status();
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
  if (!options.origin.empty()) LETHE_RETURN_IF_ERROR(ValidateKeyName(options.origin));
  // The anchor first: it is what two copies of one directory share.
  std::unique_ptr<LogAnchor> anchor;
  if (!options.anchor_directory.empty()) {
    LETHE_ASSIGN_OR_RETURN(anchor, LogAnchor::Open(options.anchor_directory));
  }
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<LogDirectory> directory,
                         LogDirectory::Lock(options.directory));
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<LogStore> store,
                         LogStore::Open(directory->database_path()));
  std::string origin = options.origin;
  if (origin.empty()) {
    LETHE_ASSIGN_OR_RETURN(const std::string identity, store->Identity());
    LETHE_ASSIGN_OR_RETURN(const VerifierKey stored, ParseVerifierKey(identity));
    origin = stored.name;
  }
  LETHE_ASSIGN_OR_RETURN(VerifierKey vkey, MakeVerifierKey(origin, options.key->public_key()));
  auto impl = std::make_unique<Impl>(options, std::move(vkey), std::move(directory),
                                     std::move(store), std::move(anchor));
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
absl::StatusOr<std::string> AuditLog::ProofFile(const Sha256Digest& leaf_hash) const {
  return impl_->ProofFile(leaf_hash);
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
