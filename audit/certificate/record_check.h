// CheckRecords: what the entries and the bodies of a whole log say, checked against one another and against trusted keys.
//
// Equation:  every entry is signed by the record key that is valid at its index: by the trusted entries for this log, and
//            from there on by its keyset records (keyset.h). A body is the envelope of its leaf, signed by that key, a
//            statement of this log (a session's record, a keyset record, the summary of a
//            ForgetSubject); the records of a session have seq without gaps among those whose bodies exist, and prev is
//            the leaf of the record before.
// Shapes:    entries and bodies in order.
// Units:     leaf indices.
// Requires:  image.entries is the whole log (log_check.h).
// Rejects:   nothing is returned as an error: the findings say what is wrong, and where.
// Effects:   none.
// Numerics:  none; a signature a body.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_RECORD_CHECK_H_
#define LETHE_AUDIT_CERTIFICATE_RECORD_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "audit/certificate/trust.h"
#include "audit/log/log_check.h"

namespace lethe::audit {

// NOT_FOUND: no body is kept.
using BodyReader =
    std::function<absl::StatusOr<std::string>(uint64_t leaf_index, const Sha256Digest& leaf_hash)>;

struct RecordSummary {
  uint64_t num_bodies = 0;
  uint64_t num_sessions = 0;         // among the bodies
  uint64_t num_keyset_records = 0;   // likewise
  uint64_t num_subject_records = 0;  // likewise: each the end of a ForgetSubject
  // The trusted keys, with what the log's keyset records add: ranges, later record keys, the next log's key.
  TrustStore keys;
};

RecordSummary CheckRecords(const LogImage& image, const std::string& origin,
                           const TrustStore& trust, const BodyReader& read_body,
                           Findings* findings);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_RECORD_CHECK_H_
