// ErasureLedger: what was erased, kept apart from the data directory, so that a restored copy of it erases that again.
//
// Equation:  entry = u64 bytes, check 8, then AES-256-GCM(ledger key, associated, plain); associated = "lethe-ledger-v1",
//            u64 offset of the entry, tag of the entry before (of the first: the header's check). So no entry can be
//            changed, moved, repeated or left out without the key, and without it nobody learns a session or token id.
// Shapes:    docs/data-directory.md: DIRECTORY/erasures, a header of 64 bytes, then entries.
// Units:     token_ids, half-open.
// Requires:  the key is in the data directory, and nowhere in the ledger's. Begin: an id that was not used before.
// Rejects:   Open: FAILED_PRECONDITION: there is none and `position` or `must_exist` says that there was; it belongs to
//            another data directory; it is older than the data directory (shorter than `position`, or another head
//            there); another process has it. DATA_LOSS: an entry is damaged. Nothing is changed or made in any of these
//            cases. Begin: RESOURCE_EXHAUSTED when the disk is full (nothing is appended); UNAVAILABLE when a write or
//            sync failed: on_failure is called.
// Effects:   Begin and Void append and sync. What a kill or a power loss left half-written at the end is cut off by Open:
//            nothing was destroyed for it.
// Numerics:  none. One fdatasync an entry.
// Threads:   safe.
//
// An erasure: Begin, before anything is destroyed; Settle, before the transaction of the session store that makes it
// final (which then stores settled() with it); Void, when it does not take place after all. Everything before
// settled() is known to be in force in the data directory; what comes later the next start looks at (ReplayErasures).
#ifndef LETHE_SERVER_STORE_ERASURE_LEDGER_H_
#define LETHE_SERVER_STORE_ERASURE_LEDGER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "audit/crypto/secret.h"
#include "audit/crypto/sha256.h"
#include "kernels/base/mutex.h"

namespace lethe {

enum class ErasureKind : uint64_t {
  kInputs = 1,   // the token_ids of a session
  kSession = 2,  // all of it
  kVoid = 3,     // the entry with this id did not take place
};

struct LedgerRange {
  uint64_t first = 0;
  uint64_t end = 0;
};

struct Erasure {
  ErasureKind kind = ErasureKind::kInputs;
  audit::Sha256Digest id{};  // the hash of its record's leaf, where it has a record
  std::string session_id;
  std::vector<LedgerRange> token_ids;
  // Of a deletion: what its repeat is recognised by, should the entry be all that a kill left of it.
  std::string request_id;
  audit::Sha256Digest request_hash{};
};

// A place between two entries; 0: before the first.
struct LedgerPosition {
  uint64_t offset = 0;
  std::array<uint8_t, 16> head{};  // the tag of the entry before
  bool operator==(const LedgerPosition& other) const {
    return offset == other.offset && head == other.head;
  }
};

struct LedgerOptions {
  std::string directory;    // created where it is missing, unless must_exist
  bool must_exist = false;  // a ledger was made before
  LedgerPosition position;  // as the data directory has it
  // Nobody knows what a failed write or sync left; should end the process.
  std::function<void(const absl::Status&)> on_failure;
};

class ErasureLedger {
 public:
  static absl::StatusOr<std::unique_ptr<ErasureLedger>> Open(const LedgerOptions& options,
                                                             const audit::Secret32& key);
  ~ErasureLedger();
  ErasureLedger(const ErasureLedger&) = delete;
  ErasureLedger& operator=(const ErasureLedger&) = delete;

  // Entries behind the position that it was opened at, in order, without those that are void.
  std::vector<Erasure> Unsettled() const;
  // Everything that is there is in force.
  void SettleAll();

  absl::Status Begin(const Erasure& erasure);
  void Settle(const audit::Sha256Digest& id);
  // Before SettleAll: nothing, unless an unsettled entry has this id.
  absl::Status Void(const audit::Sha256Digest& id);
  LedgerPosition settled() const;
  // OK until a write or sync failed.
  absl::Status failure() const;

 private:
  ErasureLedger(int descriptor, const LedgerOptions& options, const audit::Secret32& key)
      : descriptor_(descriptor), on_failure_(options.on_failure), key_(key) {}
  absl::Status Load(const LedgerPosition& position) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reads the entry at end_ and moves on; false at the end of what is whole.
  absl::StatusOr<bool> ReadNext(const std::string& file, Erasure* erasure)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Append(const Erasure& erasure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Fail(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int descriptor_;
  const std::function<void(const absl::Status&)> on_failure_;
  const audit::Secret32 key_;
  mutable Mutex mutex_;
  LedgerPosition end_ ABSL_GUARDED_BY(mutex_);
  std::vector<Erasure> loaded_ ABSL_GUARDED_BY(mutex_);
  // Where the erasures that are not settled begin; while nothing loaded is settled, before these.
  std::map<audit::Sha256Digest, LedgerPosition> open_ ABSL_GUARDED_BY(mutex_);
  LedgerPosition opened_at_ ABSL_GUARDED_BY(mutex_);
  bool loaded_is_settled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lethe

#endif  // LETHE_SERVER_STORE_ERASURE_LEDGER_H_
