// AuditLog::Impl: what an AuditLog does, under its lock: audit_log_start.cc finds out whether the log may be signed,
// audit_log_append.cc signs.
// Threads: safe.
#ifndef LETHE_AUDIT_LOG_AUDIT_LOG_IMPL_H_
#define LETHE_AUDIT_LOG_AUDIT_LOG_IMPL_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "audit/log/audit_log.h"
#include "audit/log/log_anchor.h"
#include "audit/log/log_directory.h"
#include "audit/log/log_store.h"
#include "audit/log/merkle_tree.h"
#include "kernels/base/mutex.h"

namespace lethe::audit {

class AuditLog::Impl {
 public:
  Impl(const AuditLogOptions& options, VerifierKey vkey, std::unique_ptr<LogDirectory> directory,
       std::unique_ptr<LogStore> store, std::unique_ptr<LogAnchor> anchor);

  absl::Status Start() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<AppendedLeaf> Append(absl::string_view leaf, absl::string_view body)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Recheck() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status frozen() ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t num_leaves() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::string> SignedCheckpoint() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::string> ProofFile(uint64_t leaf_index) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::string> ProofFile(const Sha256Digest& leaf_hash) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::vector<Sha256Digest>> ConsistencyProof(uint64_t old_size, uint64_t new_size)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::string> Leaf(uint64_t leaf_index) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<uint64_t> FindLeaf(const Sha256Digest& leaf_hash) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::string> Body(const Sha256Digest& leaf_hash) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EraseBody(const Sha256Digest& leaf_hash) ABSL_LOCKS_EXCLUDED(mutex_);
  const VerifierKey& verifier_key() const { return vkey_; }

 private:
  // audit_log_start.cc
  absl::Status Create() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckHead(absl::string_view note, absl::string_view what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckStoredState() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckPublished() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckBeforeSigning() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckAnchor() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckAnchoredHead(const AnchorState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeTicket(const AnchorState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<AnchorState> AnchorOfTree() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // audit_log_append.cc
  absl::StatusOr<std::string> SignHead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> Persist(const LeafRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AppendRow(const LeafRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeBack(uint64_t num_leaves, const absl::Status& cause)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CommitAndPublish(absl::string_view head) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CosignAndPublish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Cosign() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // OK when the head may leave this object.
  absl::Status MayShowHead() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Freeze(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> MakeProofFile(uint64_t leaf_index) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const AuditLogOptions options_;
  const VerifierKey vkey_;
  const std::unique_ptr<LogDirectory> directory_;  // outlives the store: it holds the lock
  const std::unique_ptr<LogStore> store_;
  const std::unique_ptr<LogAnchor> anchor_;  // null: none
  Mutex mutex_;
  MerkleTree tree_ ABSL_GUARDED_BY(mutex_);
  std::string head_ ABSL_GUARDED_BY(mutex_);  // with the cosignatures that it has
  bool head_is_cosigned_ ABSL_GUARDED_BY(mutex_) = false;
  std::string ticket_ ABSL_GUARDED_BY(mutex_);
  absl::Status frozen_ ABSL_GUARDED_BY(mutex_);
  // A leaf that the next start may find in the log although it is not there now.
  std::optional<Sha256Digest> unsettled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_AUDIT_LOG_IMPL_H_
