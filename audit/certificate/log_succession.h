// RotateRecordKey, RotateLogKey, RestoreLog: a server's keys are replaced, and its log goes on under another name, while
// the server is stopped; everything that was recorded stays verifiable.
//
// Equation:  keyset.h. The record key: two keyset records, the new key is valid from the second on. The log key: a keyset record
//            closes the log, naming the next one; a keyset record opens that one, naming the head of the last. Restore:
//            a restore record opens the new log, naming the newest head that is known of the frozen one.
// Shapes:    keys/ (keys.h) also holds public.txt, a trust file with every key that ever was in use, once one was replaced; while a
//            replacement is under way record.pem.new, or log.pem.new and log.next. A log that was left lies beside `log` as log-1, log-2, …
// Units:     none.
// Requires:  no server runs on the directory.
// Rejects:   DATA_LOSS: the log is frozen, nothing is begun; FAILED_PRECONDITION: it is not (RestoreLog), another replacement is
//            under way, the origin was used before; INVALID_ARGUMENT: the origin; what log, anchor and key files reject.
// Effects:   Every step is durable before the next one; FinishSuccession goes on after a kill, so a server calls it at every
//            start (it leaves a change that the log froze in the middle of, which RestoreLog drops). A replaced private key is
//            overwritten and removed.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_AUDIT_CERTIFICATE_LOG_SUCCESSION_H_
#define LETHE_AUDIT_CERTIFICATE_LOG_SUCCESSION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/certificate/trust.h"
#include "audit/log/audit_log.h"
#include "audit/log/closed_log.h"

namespace lethe::audit {

struct LogHome {
  std::string directory;         // holds keys/ and log/
  std::string anchor_directory;  // empty: none
  std::string issued_at;         // RFC 3339 text for the records that are made
};

absl::Status RotateRecordKey(const LogHome& home);
absl::Status RotateLogKey(const LogHome& home, const std::string& new_origin);
// `held_heads`: signed heads of the frozen log that were kept elsewhere; the newest that is known is named in the record.
absl::Status RestoreLog(const LogHome& home, const std::string& new_origin,
                        const std::vector<std::string>& held_heads);

// What a kill left undone of one of these; OK when there is nothing.
absl::Status FinishSuccession(const LogHome& home);

// Every key that was ever in use: public.txt, or without it the present keys for the log `origin`.
absl::StatusOr<TrustStore> PublicKeys(const LogHome& home, absl::string_view origin);

// The logs that were left, the newest first.
absl::StatusOr<std::vector<std::shared_ptr<ClosedLog>>> OpenPredecessors(const LogHome& home);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_LOG_SUCCESSION_H_
