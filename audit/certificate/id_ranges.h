// TokenIdRangesJson, ReadTokenIds and set relations: ascending token ids as ranges in JSON.
//
// Equation:  [["first","last"],…], ends included, ascending, with a gap of at least one id between
//            ranges, so that a set has one text.
// Shapes:    none.
// Units:     token ids.
// Requires:  TokenIdRangesJson: ids strictly ascending (LETHE_CHECK).
// Rejects:   ReadTokenIds: fails `reader` on any other text, and on more than ids_max ids.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_ID_RANGES_H_
#define LETHE_AUDIT_CERTIFICATE_ID_RANGES_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/certificate/json.h"
#include "audit/certificate/json_fields.h"

namespace lethe::audit {

Json TokenIdRangesJson(absl::Span<const uint64_t> token_ids);
std::vector<uint64_t> ReadTokenIds(absl::string_view key, uint64_t ids_max, JsonReader* reader);

bool IsStrictlyAscending(absl::Span<const uint64_t> token_ids);
// Of strictly ascending sets.
bool AreDisjoint(absl::Span<const uint64_t> a, absl::Span<const uint64_t> b);
bool IsSubset(absl::Span<const uint64_t> part, absl::Span<const uint64_t> whole);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_ID_RANGES_H_
