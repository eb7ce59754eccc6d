// DeviationJson, ReadDeviation: the bounds of a support-vector head in a statement.
//
// Equation:  ReadDeviation of what DeviationJson gives is the same bounds, bit for bit.
// Shapes:    docs/certificate-format.md, "deviation".
// Units:     statement.h.
// Requires:  none.
// Rejects:   ReadDeviation: the reader's status says what is not as the format has it.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_DEVIATION_JSON_H_
#define LETHE_AUDIT_CERTIFICATE_DEVIATION_JSON_H_

#include "audit/certificate/json.h"
#include "audit/certificate/json_fields.h"
#include "audit/certificate/statement.h"

namespace lethe::audit {

Json DeviationJson(const DeviationBounds& bounds, bool partition_proved);
DeviationBounds ReadDeviation(JsonReader reader, bool partition_proved);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_DEVIATION_JSON_H_
