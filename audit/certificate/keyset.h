// KeysetStatement: a record about the log itself: which record keys are valid for which of its leaves, and which logs it
// goes on from and goes on as.
//
// Equation:  an in-toto Statement v1 with predicateType https://lethe.dev/keyset/v1 or …/restore/v1, in canonical JSON
//            (statement.h). A new record key needs two leaves with the same statement: the first signed by the key
//            before, which ends there, the second by the new one, which begins there. The first leaf of a log that follows another
//            names that one's last head (`previous`); the last leaf of a log that was left for another names its
//            successor (`next`). A restore record is such a first leaf where the log before could not be closed: it is frozen.
// Shapes:    keys in order of their ranges, which cover 0 to 2^64 - 1 without gap; the last one is open.
// Units:     leaf indices, ends included.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT naming the field: ranges with gaps, a repeated key, a malformed key or vkey, text that is not
//            printable ASCII. ParseKeyset also: any bytes but WriteKeyset's of the same values.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_KEYSET_H_
#define LETHE_AUDIT_CERTIFICATE_KEYSET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/certificate/trust.h"
#include "audit/crypto/sha256.h"
#include "audit/log/note.h"

namespace lethe::audit {

inline constexpr char kKeysetPredicateType[] = "https://lethe.dev/keyset/v1";
inline constexpr char kRestorePredicateType[] = "https://lethe.dev/restore/v1";
inline constexpr char kKeysetSubjectName[] = "record-key";

// A head of another log, by its key.
struct LogLink {
  VerifierKey vkey;
  uint64_t tree_size = 0;
  Sha256Digest root_hash{};
};

struct KeysetStatement {
  bool is_restore = false;
  std::string log_origin;              // of the log in which the record stands
  std::string issued_at;               // RFC 3339 text, informational
  std::vector<TrustedRecordKey> keys;  // origins empty
  std::optional<VerifierKey> next;
  std::optional<LogLink> previous;  // restore: always; the newest head that is known of that log
};

absl::StatusOr<std::string> WriteKeyset(const KeysetStatement& statement);
absl::StatusOr<KeysetStatement> ParseKeyset(absl::string_view bytes);

// True when these bytes say that they are a keyset or restore statement, whether or not they parse.
bool ClaimsToBeKeyset(absl::string_view bytes);

// The keys after `next` took over at leaf `first_leaf_index`; INVALID_ARGUMENT when the range would be empty.
absl::StatusOr<std::vector<TrustedRecordKey>> RotatedKeys(std::vector<TrustedRecordKey> keys,
                                                          const Ed25519PublicKey& next,
                                                          uint64_t first_leaf_index);

// The key that is valid for this leaf; null when none is.
const TrustedRecordKey* KeyAt(const std::vector<TrustedRecordKey>& keys, uint64_t leaf_index);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_KEYSET_H_
