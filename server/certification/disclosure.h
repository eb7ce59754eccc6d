// CheckDisclosed: may an auditor see the content of this session's present state?
//
// The owner discloses a state to an auditor by a record of the audit log (Certify with disclose_to), which says so for ever. It
// holds for that state alone: an input more or less, and what is there now was not disclosed.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  the session is the principal's tenant's.
// Rejects:   PERMISSION_DENIED, reason NOT_DISCLOSED; what LiveSession rejects; reason AUDIT_LOG.
// Effects:   reads the session's disclose records in the log. Called after an answer was made, it vouches for the answer: a
//            state that has been left does not come back under the same count of Forgets and inputs.
// Numerics:  none.
// Threads:   safe; takes the session's lock.
#ifndef LETHE_SERVER_CERTIFICATION_DISCLOSURE_H_
#define LETHE_SERVER_CERTIFICATION_DISCLOSURE_H_

#include "absl/status/status.h"

#include "server/certification/audit_trail.h"
#include "server/identity/principal.h"

namespace lethe {

// OK for whoever has the user's role.
absl::Status CheckDisclosed(const Principal& principal, const AuditTrail& trail,
                            SessionEntry* entry);

}  // namespace lethe

#endif  // LETHE_SERVER_CERTIFICATION_DISCLOSURE_H_
