// SavedSession: what a session's meta rows say of it: everything but its inputs and what is computed from them.
//
// Equation:  ReadMeta(WriteSnapshot(s)) = s; rows of WriteDelta behind the snapshot are applied in order.
// Shapes:    docs/data-directory.md. A snapshot that names no tenant, as all did until there were tenants, is local's. The server's own rows (session 0) are a SavedSession with requests alone.
// Units:     as SessionEntry.
// Requires:  none.
// Rejects:   ReadMeta: DATA_LOSS unless the first row is a snapshot and every byte is understood.
// Effects:   none.
// Numerics:  none.
// Threads:   safe; SaveEntry under the session's lock.
#ifndef LETHE_SERVER_SESSION_REGISTRY_SAVED_SESSION_H_
#define LETHE_SERVER_SESSION_REGISTRY_SAVED_SESSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "server/session_registry/session_entry.h"

namespace lethe {

// Set on from every change.
struct SavedCounters {
  uint64_t next_token_id = 1;
  uint64_t vector_epoch = 0;
  int64_t num_exports = 0;
};

// Where a stored model session was evaluated.
struct SavedModel {
  std::string name;
  audit::Sha256Digest digest{};
  MemoryOverrides memory;
};

struct SavedSession {
  std::string session_id;
  std::string tenant = kLocalTenant;
  std::string display_name;
  int64_t create_time_us = 0;
  audit::Sha256Digest numerics_id{};
  std::string device_kind;
  std::optional<SavedModel> model;  // of a model's session
  VectorOptions vectors;            // of a vector session
  bool selected = false;            // likewise

  SavedCounters counters;
  HistoryMark mark;
  std::vector<RecordRef> record_refs;  // without leaf_index
  std::vector<std::string> openings;   // canonical JSON, oldest first
  std::vector<RequestTable::Saved> requests;
};

// What is added behind a snapshot: counters always, the rest where there is some.
struct SavedDelta {
  SavedCounters counters;
  std::optional<RequestTable::Saved> request;
  std::optional<RecordRef> record;
  std::string opening;  // of the record
};

std::string WriteSnapshot(const SavedSession& session);
std::string WriteDelta(const SavedDelta& delta);
absl::StatusOr<SavedSession> ReadMeta(absl::Span<const std::string> rows);

// The present state of an entry whose session is in memory.
SavedSession SaveEntry(const SessionEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex);
SavedCounters CountersOf(const SessionEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex);
// The request that `answer` answers, unless it has no id or is not kept.
std::optional<RequestTable::Saved> SaveRequest(const RequestKey& request,
                                               const StoredAnswer& answer);
// Likewise of a request of the registry's own, which keeps those of all tenants.
std::optional<RequestTable::Saved> SaveOwnRequest(const std::string& tenant,
                                                  const RequestKey& request,
                                                  const StoredAnswer& answer);

void WriteRecordRef(const RecordRef& ref, ByteWriter* writer);
absl::Status ReadRecordRef(ByteReader* reader, RecordRef* ref);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_SAVED_SESSION_H_
