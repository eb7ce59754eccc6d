// AuditTrail: where this server's records go, and what every record says about the engine that made
// it.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  log and recorder outlive the trail's users.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_CERTIFICATION_AUDIT_TRAIL_H_
#define LETHE_SERVER_CERTIFICATION_AUDIT_TRAIL_H_

#include <string>
#include <vector>

#include "audit/certificate/recorder.h"
#include "audit/log/audit_log.h"
#include "server/session_registry/session_entry.h"
#include "server/store/erasure_ledger.h"

namespace lethe {

struct AuditTrail {
  audit::AuditLog* log = nullptr;
  audit::Recorder* recorder = nullptr;
  audit::Sha256Digest binary{};     // SHA-256 of the running program
  std::string build;                // "lethe 0.1.0 g++ 12.2.0 x86-64-v3"
  ErasureLedger* ledger = nullptr;  // null: what is erased is not kept anywhere
  bool memory_wiped = false;        // this process does so (server/wiping)
};

// The algorithm by which a Forget reaches the state of the shorter history in this version.
inline constexpr char kForgetAlgorithm[] = "lethe-canonical-v2";

// What the records of a session have in common: kind, session, nonce and request (the server's own
// where the client sent none), time and engine.
audit::RecordDraft StartDraft(const AuditTrail& trail, audit::RecordKind kind,
                              const SessionEntry& entry, const std::string& nonce,
                              const std::string& request_id);

// For a record whose client sent none.
std::string RandomNonce();

// token_ids of the session's inputs in rank order.
std::vector<uint64_t> RetainedIds(const Inputs& inputs);

// Maximal ranges of consecutive ids; `ids` ascending.
std::vector<TokenIdRange> ToRanges(const std::vector<uint64_t>& ids);

// The record that `finished` became, for the session's list.
RecordRef MakeRecordRef(const audit::FinishedRecord& finished, audit::RecordKind kind,
                        const HistoryMark& mark, int64_t num_inputs);

}  // namespace lethe

#endif  // LETHE_SERVER_CERTIFICATION_AUDIT_TRAIL_H_
