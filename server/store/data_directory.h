// DataDirectory: what a server keeps on disk: its keys, the audit log, the sessions, the trust file for auditors.
//
// Equation:  none.
// Shapes:    directory: lock, keys/ (audit/certificate/keys.h), log/ (audit/log/audit_log.h),
//            sessions/ (session_store.h), trust.txt (audit/certificate/trust.h). The erasure ledger lies elsewhere, and
//            with it the log's anchor (audit/log/log_anchor.h).
// Units:     none.
// Requires:  none.
// Rejects:   Open: FAILED_PRECONDITION when another server uses the directory; UNAVAILABLE for
//            input/output errors; what keys, log, session store and erasure ledger reject. A frozen log opens (records can be
//            read, none is written).
// Effects:   creates the directory (0700), keys and log at the first start. The erasure ledger comes before the log: with one
//            that is missing, another's, older or damaged nothing is changed and nothing made, and the log keeps its
//            ticket. Writes trust.txt anew whenever it differs; finishes a change of keys that a kill interrupted
//            (audit/certificate/log_succession.h); settles what the last process left unfinished in the session store,
//            by what the log holds.
// Numerics:  none.
// Threads:   Open: none; afterwards safe.
#ifndef LETHE_SERVER_STORE_DATA_DIRECTORY_H_
#define LETHE_SERVER_STORE_DATA_DIRECTORY_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "audit/certificate/recorder.h"
#include "audit/log/audit_log.h"
#include "server/store/erasure_ledger.h"
#include "server/store/session_store.h"

namespace lethe {

// The name of a log whose server was given none.
inline constexpr char kDefaultOrigin[] = "lethe.dev/audit/local";

// How the log is opened, beyond where it is (audit/log/audit_log.h).
struct LogPolicy {
  bool adopt = false;
  std::vector<std::string> expected_heads = {};
  std::shared_ptr<audit::HeadWitness> witness = nullptr;
  bool witness_required = true;
};

// A change of keys, made while no server runs (audit/certificate/log_succession.h).
struct KeyChange {
  enum class Kind { kRotateRecordKey, kRotateLogKey, kRestoreLog };
  Kind kind = Kind::kRotateRecordKey;
  std::string new_origin;               // of the two changes of the log
  std::vector<std::string> held_heads;  // kRestoreLog
};

class DataDirectory {
 public:
  // `origin`: of a log that does not exist yet (empty: kDefaultOrigin); else it must be the log's or empty.
  // `on_store_failure`: session_store.h, erasure_ledger.h. `ledger_path`: empty: the data directory's with "-ledger" behind it.
  static absl::StatusOr<std::unique_ptr<DataDirectory>> Open(
      const std::string& path, const std::string& origin,
      const std::function<void(const absl::Status&)>& on_store_failure = {},
      const std::string& ledger_path = "", const LogPolicy& policy = {});
  // Changes a key in a directory that exists, with its erasure ledger, and returns the log's origin from now on.
  static absl::StatusOr<std::string> ChangeKey(const std::string& path,
                                               const std::string& ledger_path,
                                               const KeyChange& change);
  ~DataDirectory();
  DataDirectory(const DataDirectory&) = delete;
  DataDirectory& operator=(const DataDirectory&) = delete;

  audit::AuditLog* log() const { return log_.get(); }
  audit::Recorder* recorder() const { return recorder_.get(); }
  SessionStore* store() const { return store_.get(); }
  ErasureLedger* ledger() const { return ledger_.get(); }
  // What Open found unfinished.
  const RecoveryReport& store_report() const { return store_report_; }
  // SubjectPublicKeyInfo (DER) of the key that signs records.
  const std::string& record_spki() const { return record_spki_; }
  const std::string& trust_path() const { return trust_path_; }

 private:
  DataDirectory() = default;
  absl::Status OpenLog(const std::string& root, const std::string& origin,
                       const std::string& ledger_path, const LogPolicy& policy);
  // The session store and the ledger that belongs to it.
  absl::Status OpenStore(const std::string& root, const std::string& ledger_path,
                         bool ledger_must_exist,
                         const std::function<void(const absl::Status&)>& on_failure);

  int lock_descriptor_ = -1;
  std::unique_ptr<audit::AuditLog> log_;
  std::unique_ptr<audit::Recorder> recorder_;
  std::unique_ptr<ErasureLedger> ledger_;
  std::unique_ptr<SessionStore> store_;
  RecoveryReport store_report_;
  std::string record_spki_;
  std::string trust_path_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_STORE_DATA_DIRECTORY_H_
