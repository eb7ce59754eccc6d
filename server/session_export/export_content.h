// ExportedSession, EncodeExport, DecodeExport, MoveTokenIds, CanonicalContent: what a session export says, as a plain struct and as
// bytes.
//
// Equation:  DecodeExport(EncodeExport(s)) = s. CanonicalContent leaves out what is not state: two sessions of equal
//            options with equal histories have equal canonical contents, whatever came and went in between.
// Shapes:    docs/session-export.md. A format of its own: the session store's may change with the server.
// Units:     token_ids.
// Requires:  MoveTokenIds: the ids stay at most twice kImportedTokenIdMax.
// Rejects:   DecodeExport: DATA_LOSS for bytes that EncodeExport does not write. INVALID_ARGUMENT for values that no session
//            has, naming the field: an import is given by a client, who has the key and may have written anything.
// Effects:   inputs, keys and values are overwritten when they go.
// Numerics:  none; floating point by its bits.
// Threads:   safe.
#ifndef LETHE_SERVER_SESSION_EXPORT_EXPORT_CONTENT_H_
#define LETHE_SERVER_SESSION_EXPORT_EXPORT_CONTENT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/sha256.h"
#include "server/journal/input_codec.h"
#include "server/session_registry/saved_session.h"

namespace lethe {

// Ids go on from here: there is room for as many again.
inline constexpr uint64_t kImportedTokenIdMax = uint64_t{1} << 62;

struct ExportedSession {
  std::string display_name;
  std::optional<SavedModel> model;  // of a model's session
  VectorOptions vectors;            // of a vector session; without its server's max_inputs
  bool selected = false;            // likewise
  audit::Sha256Digest numerics_id{};
  std::string device_kind;
  audit::Sha256Digest state_digest{};  // as the exporting server evaluated it
  uint64_t next_token_id = 1;
  DecodedInputs history;
};

// `vectors`: the rows of the history's vectors.
std::string EncodeExport(const ExportedSession& session, const Inputs& inputs,
                         const VectorRows& vectors);
absl::StatusOr<ExportedSession> DecodeExport(absl::string_view bytes);

// Adds `offset` to every token_id, the next one included.
void MoveTokenIds(uint64_t offset, ExportedSession* session);

// Without token_ids, name and where it was evaluated.
std::string CanonicalContent(const ExportedSession& session);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_EXPORT_EXPORT_CONTENT_H_
