// Credential, ParseCredentials, FindCredential: a file of credentials, one a line: whose each is, what it may, until when, and
// the SHA-256 by which it is known.
//
// Equation:  of a bearer token the SHA-256 of its text; of a client certificate that of its DER.
// Shapes:    a line: TENANT NAME ROLES EXPIRES SHA256, separated by spaces or tabs. TENANT and NAME as Principal's; ROLES one
//            or more of user, eraser, auditor, operator, with commas between them; EXPIRES `never` or an RFC 3339 time
//            like 2027-01-31T00:00:00Z; SHA256 64 hex digits. Empty lines, and those that begin with #, say nothing.
// Units:     seconds since the epoch.
// Requires:  none.
// Rejects:   ParseCredentials: INVALID_ARGUMENT "line N: …" naming field and accepted values, never the line's text: a line
//            of other form, a SHA256 that stands twice, more than kCredentialsMax lines of this kind, a last line without
//            a newline (the file is being written).
// Effects:   none.
// Numerics:  none.
// Threads:   safe. FindCredential takes the time of the whole list, wherever the digest stands and whether it does.
#ifndef LETHE_SERVER_IDENTITY_CREDENTIALS_H_
#define LETHE_SERVER_IDENTITY_CREDENTIALS_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/crypto/sha256.h"
#include "server/identity/principal.h"

namespace lethe {

inline constexpr size_t kCredentialsMax = 10'000;

struct Credential {
  Principal principal;
  int64_t expires_s = std::numeric_limits<int64_t>::max();
  audit::Sha256Digest digest{};
};

absl::StatusOr<std::vector<Credential>> ParseCredentials(absl::string_view text);

inline constexpr char kAcceptedCredentialName[] =
    "1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit";
// What a tenant or a credential may be called.
bool IsCredentialName(absl::string_view text);

// 64 hex digits of either case.
absl::StatusOr<audit::Sha256Digest> ParseFingerprint(absl::string_view text);

// Null: there is none that is valid at this time.
const Credential* FindCredential(absl::Span<const Credential> credentials,
                                 const audit::Sha256Digest& digest, int64_t now_s);

}  // namespace lethe

#endif  // LETHE_SERVER_IDENTITY_CREDENTIALS_H_
