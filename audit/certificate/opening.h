// Opening: the detached secret that opens one record's salted values; handed to the session's
// owner.
//
// Equation:  canonical JSON (statement.h)
//            {"_type","certSalt","derivedKept","forgotten","leaf","retained","stateDigest"}.
// Shapes:    id sets are ascending, disjoint, maximal ranges of token ids, ends included.
// Units:     none.
// Requires:  WriteOpening: ids strictly ascending (LETHE_CHECK).
// Rejects:   ParseOpening: INVALID_ARGUMENT for any other bytes than WriteOpening's; more than
//            kOpeningIdsMax ids.
// Effects:   the salt wipes itself. A Forget destroys the openings of all earlier records of the
//            session: whoever holds one can test guesses about the state under it.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_AUDIT_CERTIFICATE_OPENING_H_
#define LETHE_AUDIT_CERTIFICATE_OPENING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/secret.h"
#include "audit/crypto/sha256.h"

namespace lethe::audit {

inline constexpr char kOpeningType[] = "https://lethe.dev/opening/v1";
inline constexpr uint64_t kOpeningIdsMax = uint64_t{1} << 24;

struct Opening {
  Secret32 salt;
  Sha256Digest state_digest{};  // after the record's event, unsalted
  Sha256Digest leaf_hash{};     // the record that it opens
  std::vector<uint64_t> retained;
  std::vector<uint64_t> forgotten;     // empty in certify records
  std::vector<uint64_t> derived_kept;  // empty in certify records
};

std::string WriteOpening(const Opening& opening);
absl::StatusOr<Opening> ParseOpening(absl::string_view bytes);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_OPENING_H_
