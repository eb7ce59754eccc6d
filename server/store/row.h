// NewRow, StoredRow: a row of the session store, sealed under a data key.
//
// Equation:  session_store.h.
// Shapes:    none.
// Units:     token_ids in a span, half-open; a row that holds no inputs has an empty one.
// Requires:  SealRow: `row.key` is that of `key`.
// Rejects:   OpenRow: DATA_LOSS when anything that the row says is not what was sealed.
// Effects:   a NewRow's plain body is overwritten when it goes.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_STORE_ROW_H_
#define LETHE_SERVER_STORE_ROW_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/secret.h"
#include "server/store/data_keys.h"

namespace lethe {

enum class RowKind : int64_t {
  kMeta = 1,
  kInputs = 2,
  kSnapshot = 3,  // a state that the session can go on from; its span: what it was evaluated from
  kJob = 4,       // of a job (server/forget_subject), which has a session number of its own
};

// What is told of a row's inputs without opening it.
struct RowSpan {
  uint64_t first_id = 0;
  uint64_t end_id = 0;
  int64_t num_inputs = 0;
};

struct NewRow {
  NewRow(RowKind row_kind, DataKeyRef row_key, RowSpan row_span, std::string row_body)
      : kind(row_kind), key(row_key), span(row_span), body(std::move(row_body)) {}
  ~NewRow() { audit::SecureWipe(&body); }
  NewRow(NewRow&&) = default;
  NewRow& operator=(NewRow&&) = default;
  NewRow(const NewRow&) = delete;
  NewRow& operator=(const NewRow&) = delete;

  RowKind kind;
  DataKeyRef key;
  RowSpan span;
  std::string body;  // plain
};

struct StoredRow {
  int64_t row_id = 0;
  RowKind kind = RowKind::kMeta;
  DataKeyRef key;
  RowSpan span;
  int64_t num_bytes = 0;  // sealed; not authenticated
};

// The name of a session, kept beside its rows.
std::string SealName(const StoreId& store, int64_t session, const audit::Secret32& key,
                     absl::string_view name);
absl::StatusOr<std::string> OpenName(const StoreId& store, int64_t session,
                                     const audit::Secret32& key, absl::string_view sealed);

std::string SealRow(const StoreId& store, int64_t session, const StoredRow& row,
                    const audit::Secret32& key, absl::string_view body);
absl::StatusOr<std::string> OpenRow(const StoreId& store, int64_t session, const StoredRow& row,
                                    const audit::Secret32& key, absl::string_view sealed);

}  // namespace lethe

#endif  // LETHE_SERVER_STORE_ROW_H_
