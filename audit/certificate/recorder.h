// Recorder: turns an event of a session into a signed record of the audit log and its opening, and what a ForgetSubject
// did into its summary record.
//
// Equation:  design.md 6: statement (statement.h) -> DSSE envelope -> leaf -> log -> tlog-proof.
// Shapes:    RecordDraft holds clear values; they leave it only under the record's salt, or in the
//            opening.
// Units:     ids and counts in inputs.
// Requires:  `records` belongs to the session of `draft.session_id`; ids ascending; every head's
//            spans of one length (all checked: INVALID_ARGUMENT).
// Rejects:   INVALID_ARGUMENT as WriteStatement; DATA_LOSS when the log is frozen. On error nothing
//            changed: neither log nor `records`.
// Effects:   Record appends one leaf with the envelope as its body and advances the session's
//            sequence. When it took inputs out (RemovesInputs) the openings of all earlier records of the
//            session are then destroyed (wiped).
// Numerics:  none; one HMAC per retained id and one SHA-256 pair per partition row.
// Threads:   Recorder is safe; one SessionRecords is used by one thread at a time.
#ifndef LETHE_AUDIT_CERTIFICATE_RECORDER_H_
#define LETHE_AUDIT_CERTIFICATE_RECORDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/certificate/commitment.h"
#include "audit/certificate/keys.h"
#include "audit/certificate/opening.h"
#include "audit/certificate/statement.h"
#include "audit/certificate/subject_summary.h"
#include "audit/crypto/secret.h"
#include "audit/log/audit_log.h"

namespace lethe::audit {

// One support-vector memory head as the engine reports it.
struct MemoryDraft {
  uint64_t layer = 0;
  uint64_t group = 0;
  uint64_t head = 0;
  std::vector<uint64_t> token_ids;  // of the gated keys, rank order
  std::vector<KeyClass> classes;
  std::vector<double> a;
  double smallest_margin = 0;
  bool partition_proved = false;
  // Certify: the bounds (evidence is filled in here) and what they were computed from: the hash of
  // the head's part of the state digest, and of the witness (head_proof.h).
  std::optional<DeviationBounds> deviation;
  Sha256Digest part_hash{};
  std::optional<Sha256Digest> witness_hash;  // of the witness that the bounds rest on
};

struct RecordDraft {
  RecordKind kind = RecordKind::kForget;
  std::string session_id;
  std::string nonce;  // 16 to 32 bytes
  std::string request_id;
  std::string issued_at;
  EngineIdentity engine;
  Sha256Digest digest_before{};  // Forget and select
  Sha256Digest digest_after{};
  std::vector<uint64_t> retained;   // after the event, ascending
  std::vector<uint64_t> forgotten;  // Forget; select: evicted; ascending
  DerivedPolicy derived_policy = DerivedPolicy::kFail;
  std::vector<uint64_t> derived_kept;  // ascending
  // True when the session still holds tokens drawn from inputs forgotten by this or an earlier record.
  bool retains_derived = false;
  // True when this or an earlier record of the session is a selection.
  bool inputs_evicted = false;
  // True when the server wipes what its memory held (scopes.h); then `stores` of a removal name it.
  bool memory_wiped = false;
  std::vector<LayerReport> layers;
  std::vector<MemoryDraft> memories;
  // Certify only: the record carries P2; then every head with keys has its deviation.
  bool proves_optimality = false;
  std::vector<StoreReport> stores;
  std::optional<Arithmetic> migrated_from;  // migrate
  std::string auditor;                      // disclose
};

struct FinishedRecord {
  uint64_t seq = 0;
  uint64_t leaf_index = 0;
  Sha256Digest leaf_hash{};
  std::string envelope;    // DSSE JSON
  std::string proof_file;  // tlog-proof@v1
  std::string opening;     // canonical JSON
  Statement statement;
};

// A record that is signed and about to be appended to the log.
struct PreparedRecord {
  uint64_t seq = 0;
  Sha256Digest leaf_hash{};
  std::string opening;  // canonical JSON
};

// The summary of a ForgetSubject, which is no record of a session: it has no place in a session's sequence.
struct FinishedSummary {
  uint64_t leaf_index = 0;
  Sha256Digest leaf_hash{};
  std::string envelope;    // DSSE JSON
  std::string proof_file;  // tlog-proof@v1
};

// A session's place in its sequence of records, and the openings that still exist.
class SessionRecords {
 public:
  uint64_t next_seq() const { return next_seq_; }
  const Sha256Digest& prev() const { return prev_; }
  // Null when the record is unknown or its opening was destroyed.
  const Opening* FindOpening(const Sha256Digest& leaf_hash) const;
  size_t num_openings() const { return openings_.size(); }
  void DestroyOpenings();
  const std::vector<Opening>& openings() const { return openings_; }
  // The records of a session that was stored: how many, the newest one's leaf hash, and the openings that exist still,
  // oldest first, the newest record's last.
  static SessionRecords Restore(uint64_t num_records, const Sha256Digest& newest,
                                std::vector<Opening> openings);

 private:
  friend class Recorder;
  uint64_t next_seq_ = 1;
  Sha256Digest prev_{};
  std::vector<Opening> openings_;
  std::optional<Secret32> last_salt_;
};

class Recorder {
 public:
  // `log` outlives the recorder.
  Recorder(ServerKeys keys, AuditLog* log);

  // `before_append`, unless empty, runs when all but the log has agreed; its error ends the call, with nothing changed.
  absl::StatusOr<FinishedRecord> Record(
      const RecordDraft& draft, SessionRecords* records,
      const std::function<absl::Status(const PreparedRecord&)>& before_append = {});

  // `summary.log_origin` is set here. `before_append`: as above, with the leaf's hash.
  absl::StatusOr<FinishedSummary> RecordSummary(
      SubjectSummary summary,
      const std::function<absl::Status(const Sha256Digest&)>& before_append = {});

  Sha256Digest SessionPseudonym(absl::string_view session_id) const;

 private:
  absl::StatusOr<Statement> MakeStatement(const RecordDraft& draft, const SessionRecords& records,
                                          const Secret32& salt) const;
  struct SignedLeaf {
    std::string envelope;
    std::string leaf;
    Sha256Digest leaf_hash{};
  };
  SignedLeaf Sign(const std::string& payload) const;

  const ServerKeys keys_;
  AuditLog* const log_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_RECORDER_H_
