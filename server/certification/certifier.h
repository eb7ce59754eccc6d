// Certify, GetCertificate: signed statements about the present state of a session, and records
// fetched again.
//
// Equation:  bounds: memory/svdd/proof.h.
// Shapes:    none.
// Units:     seq counts a session's records from 1.
// Requires:  the commands passed the edge's checks.
// Rejects:   Certify: DATA_LOSS or UNAVAILABLE, reason AUDIT_LOG; CANCELLED, DEADLINE_EXCEEDED
//            before the record. GetCertificate: NOT_FOUND, reason RECORD_NOT_FOUND. Both:
//            FAILED_PRECONDITION, reason EPOCH_PASSED, for the bundle of a state that is not the
//            present one any more.
// Effects:   Certify appends one record. A bundle is computed from the present state and never
//            stored; a repeated Certify gets the first record and, while the state is still the
//            certified one, the bundle.
// Numerics:  as proof and witness (memory/svdd): O(n |S u E| d + |S|^3) per head under the session's
//            lock and a compute slot.
// Threads:   safe.
#ifndef LETHE_SERVER_CERTIFICATION_CERTIFIER_H_
#define LETHE_SERVER_CERTIFICATION_CERTIFIER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/byte_io.h"
#include "memory/svdd/proof.h"
#include "server/certification/audit_trail.h"
#include "server/scheduler/compute_scheduler.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

struct HeadReport {
  std::string head;
  int64_t num_keys = 0;
  int64_t num_margin = 0;
  int64_t num_error = 0;
  int64_t num_reserve = 0;
  std::optional<svdd::OptimalityBounds> bounds;  // absent in the warm-up
  bool partition_proved = false;  // also in the warm-up, where the one feasible point is known
};

// What is kept of a Certify for its repeats.
struct CertifiedHeads {
  uint64_t seq = 0;
  std::vector<HeadReport> heads;
  std::optional<audit::Sha256Digest> digest;  // absent: a later Forget destroyed it
};

struct CertificateText {
  RecordRef ref;
  std::string envelope;
  std::string log_proof;
  std::string opening;  // empty once destroyed
};

struct CertifyCommand {
  std::string nonce;  // empty: the server draws one
  bool include_bundle = false;
  RequestKey request;
  std::string disclose_to;  // empty: nobody; else the name of an auditor (disclosure.h)
};

struct CertifyReceipt {
  CertificateText certificate;
  std::vector<HeadReport> heads;
  std::optional<audit::Sha256Digest> digest;  // absent: a later Forget destroyed it
  std::vector<audit::StatePart> parts;
  std::string bundle;
};

// As DecodeForgetAnswer (forgetter.h).
absl::StatusOr<std::shared_ptr<StoredAnswer>> DecodeCertifyAnswer(
    ByteReader* reader, absl::Span<const RecordRef> records);

absl::StatusOr<CertifyReceipt> Certify(const CertifyCommand& command, const Call& call,
                                       ComputeScheduler* scheduler, const AuditTrail& trail,
                                       const std::shared_ptr<SessionEntry>& entry);

struct FetchedCertificate {
  CertificateText certificate;
  std::string bundle;
};
// seq 0 = the newest record.
absl::StatusOr<FetchedCertificate> GetCertificate(uint64_t seq, bool include_bundle,
                                                  const Call& call, ComputeScheduler* scheduler,
                                                  const AuditTrail& trail,
                                                  const std::shared_ptr<SessionEntry>& entry);

}  // namespace lethe

#endif  // LETHE_SERVER_CERTIFICATION_CERTIFIER_H_
