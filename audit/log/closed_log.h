// ClosedLog: a log directory that is read and never signed again: a log that was rotated away, or one under examination.
//
// Equation:  as audit_log.h.
// Shapes:    as audit_log.h.
// Units:     leaf_index counts from 0.
// Requires:  none.
// Rejects:   Open: NOT_FOUND where no log is; FAILED_PRECONDITION while another process holds it or for another schema; DATA_LOSS for
//            a database that SQLite cannot read. ProofFile: DATA_LOSS when the stored leaves do not have the
//            last stored head's root: nothing is proved from a damaged log. Reads: NOT_FOUND.
// Effects:   none, but that SQLite finishes an unfinished transaction of its own.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_LOG_CLOSED_LOG_H_
#define LETHE_AUDIT_LOG_CLOSED_LOG_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "audit/crypto/sha256.h"
#include "audit/log/log_check.h"
#include "audit/log/log_directory.h"
#include "audit/log/log_store.h"
#include "audit/log/note.h"
#include "kernels/base/mutex.h"

namespace lethe::audit {

class ClosedLog {
 public:
  static absl::StatusOr<std::unique_ptr<ClosedLog>> Open(const std::string& path);

  const VerifierKey& verifier_key() const { return vkey_; }
  absl::StatusOr<uint64_t> FindLeaf(const Sha256Digest& leaf_hash) const;
  absl::StatusOr<std::string> Body(uint64_t leaf_index) const;
  absl::StatusOr<std::string> ProofFile(uint64_t leaf_index) const;
  // The newest head among those stored and the published one; NOT_FOUND when none verifies.
  absl::StatusOr<Checkpoint> NewestHead() const;
  // Everything in it, checked as far as the log goes.
  LogImage Read(Findings* findings) const;

 private:
  ClosedLog(VerifierKey vkey, std::unique_ptr<LogDirectory> directory,
            std::unique_ptr<LogStore> store);
  const VerifierKey vkey_;
  const std::unique_ptr<LogDirectory> directory_;  // outlives the store: it holds the lock
  const std::unique_ptr<LogStore> store_;
  mutable Mutex mutex_;  // of the store
  std::string head_;     // the last stored head, if the tree has its root
  MerkleTree tree_;
  absl::Status whole_;  // OK: tree_ and head_ fit
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_CLOSED_LOG_H_
