// TrustStore: the keys that a verifier got out of band; the only keys that ever count.
//
// Equation:  a text file, one entry a line: "record <SPKI DER in hex> [<first>-[<last>] [<origin>]]" (a record
//            key, with the leaf indices for which it is valid, all when absent, and the log in which, any
//            when absent), "log <vkey>" (C2SP), "witness <vkey>" (C2SP, key type 4: every head must carry the
//            cosignature of each of these), empty lines and "# comments".
// Shapes:    SPKI 44 bytes (88 hex digits).
// Units:     leaf indices, ends included.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT naming the line: unknown word, malformed key, small-order key, empty
//            range, a repeated entry, over kTrustBytesMax bytes.
// Effects:   none.
// Numerics:  none.
// Threads:   safe when const.
#ifndef LETHE_AUDIT_CERTIFICATE_TRUST_H_
#define LETHE_AUDIT_CERTIFICATE_TRUST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/ed25519.h"
#include "audit/log/cosignature.h"
#include "audit/log/note.h"

namespace lethe::audit {

inline constexpr size_t kTrustBytesMax = size_t{1} << 20;

struct TrustedRecordKey {
  Ed25519PublicKey key;
  uint64_t first_leaf_index = 0;
  uint64_t last_leaf_index = UINT64_MAX;
  std::string origin = {};  // empty: every log of the trust file
};

struct TrustStore {
  std::vector<TrustedRecordKey> record_keys;
  std::vector<VerifierKey> log_keys;
  std::vector<WitnessKey> witnesses;  // every head must carry the cosignature of each
};

absl::StatusOr<TrustStore> ParseTrust(absl::string_view text);
std::string WriteTrust(const TrustStore& trust);

// True when some entry of this key covers this leaf of this log.
bool IsValidAt(const TrustStore& trust, const Ed25519PublicKey& key, absl::string_view origin,
               uint64_t leaf_index);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_TRUST_H_
