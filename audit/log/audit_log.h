// AuditLog: the append-only, signed, tamper-evident log of records on disk.
//
// Equation:  RFC 6962 tree over the leaves (merkle_tree.h), signed heads (checkpoint.h).
// Shapes:    directory holds log.db (SQLite: leaves, signed heads, erasable bodies), log.lock, and
//            `checkpoint`, the newest signed head, kept outside the database so that a database
//            that was cut or restored from an older copy is noticed. With an anchor (log_anchor.h) also `ticket`.
// Units:     leaf_index counts from 0.
// Requires:  none.
// Rejects:   Open: FAILED_PRECONDITION when another process (or object) holds the log or its anchor, or when the
//            log was written under another origin or key; UNAVAILABLE on input/output errors.
//            Append: DATA_LOSS while frozen; INVALID_ARGUMENT for a leaf of another size than
//            kLogLeafBytes; UNAVAILABLE while a required witness does not answer. Reads: NOT_FOUND, OUT_OF_RANGE.
//            FindLeaf: DATA_LOSS for a leaf whose commit failed: the next start may find it on disk.
// Effects:   Open recomputes every leaf hash and the root from the stored leaves, and compares with
//            the last signed head, with `checkpoint`, with the anchor and with expected_heads. A difference, or a log
//            shorter than a head that was signed, freezes the log: it is never signed again (frozen() says why,
//            DATA_LOSS), and proofs are refused; stored bytes can still be read. A log that stopped between its
//            anchor and its commit is completed with the leaf that the anchor has. Append makes
//            {leaf, body, size, root, signature} durable in one transaction, with the anchor written before the
//            signature exists, verifies its own signature, has the head cosigned, then publishes `checkpoint`; any failure
//            at or after the commit freezes the log. The whole tree is recomputed from the stored leaves again whenever
//            the size reaches a power of two. EraseBody removes a body's bytes from the database
//            and its write-ahead log (secure_delete, truncated WAL), and from the anchor.
// Numerics:  none; an append costs two syncs (four with an anchor) and O(log n) hashes.
// Threads:   safe.
#ifndef LETHE_AUDIT_LOG_AUDIT_LOG_H_
#define LETHE_AUDIT_LOG_AUDIT_LOG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/ed25519.h"
#include "audit/crypto/sha256.h"
#include "audit/log/checkpoint.h"
#include "audit/log/head_witness.h"

namespace lethe::audit {

class ClosedLog;

struct AuditLogOptions {
  std::string directory;  // created (mode 0700) when absent
  // The log's name: non-empty, no space, no '+'; for example "lethe.dev/audit/eu1". Empty: the one that it has.
  std::string origin;
  std::shared_ptr<const Ed25519PrivateKey> key;
  // Where the anchor is: outside `directory` and its backups. Empty: none; an older copy is then noticed only by what
  // lies in the directory itself.
  std::string anchor_directory = {};
  // Takes a log whose anchor is gone for the newest copy there is.
  bool adopt = false;
  // Signed heads that were kept elsewhere; the log must extend each.
  std::vector<std::string> expected_heads = {};
  std::shared_ptr<HeadWitness> witness = nullptr;  // null: none
  // True: no head that lacks its cosignatures leaves this object, and nothing is appended behind one.
  bool witness_required = true;
  // Logs that this one goes on from: FindLeaf, Body and ProofFile by hash look there too.
  std::vector<std::shared_ptr<ClosedLog>> predecessors = {};
};

// Where a record stands, with the proof of that, as of the head signed with it.
struct AppendedLeaf {
  uint64_t leaf_index = 0;
  Sha256Digest leaf_hash{};
  std::string proof_file;  // tlog-proof@v1
};

class AuditLog {
 public:
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const AuditLogOptions& options);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  absl::StatusOr<AppendedLeaf> Append(absl::string_view leaf, absl::string_view body);

  // OK, or the DATA_LOSS status that Append returns for ever.
  absl::Status frozen() const;
  uint64_t num_leaves() const;
  VerifierKey verifier_key() const;

  // The newest signed head, a C2SP checkpoint.
  absl::StatusOr<std::string> SignedCheckpoint() const;
  // A tlog-proof@v1 file of this leaf in the newest signed head.
  absl::StatusOr<std::string> ProofFile(uint64_t leaf_index) const;
  // The same of a leaf of this log or of a predecessor, in that log's newest head.
  absl::StatusOr<std::string> ProofFile(const Sha256Digest& leaf_hash) const;
  absl::StatusOr<std::vector<Sha256Digest>> ConsistencyProof(uint64_t old_size,
                                                             uint64_t new_size) const;

  absl::StatusOr<std::string> Leaf(uint64_t leaf_index) const;
  // Its index in the log that holds it. DATA_LOSS while it is open whether the next start will find the leaf.
  absl::StatusOr<uint64_t> FindLeaf(const Sha256Digest& leaf_hash) const;
  // NOT_FOUND for an unknown leaf and for an erased body.
  absl::StatusOr<std::string> Body(const Sha256Digest& leaf_hash) const;
  absl::Status EraseBody(const Sha256Digest& leaf_hash);

  // Recomputes the tree from the stored leaves now; freezes the log when it differs.
  absl::Status Recheck();

 private:
  class Impl;
  explicit AuditLog(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_AUDIT_LOG_H_
