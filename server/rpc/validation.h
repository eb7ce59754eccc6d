// Checks of request fields at the edge: every error names the field and what is accepted, and
// repeats no content.
//
// Equation:  none.
// Shapes:    none.
// Units:     bytes, ids.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT, reason INVALID_FIELD, metadata field and accepted.
// Effects:   none.
// Numerics:  NaN is outside every range.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_VALIDATION_H_
#define LETHE_SERVER_RPC_VALIDATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include <google/protobuf/message.h>

#include "lethe/v1/types.pb.h"
#include "server/model/model.h"
#include "server/rpc/server_core.h"

namespace lethe {

inline constexpr size_t kTextBytesMax = size_t{1} << 20;
inline constexpr int kVocabIdsMax = 1 << 20;
inline constexpr size_t kLabelBytesMax = 128;
inline constexpr size_t kSelectedIdsMax = 65536;
inline constexpr size_t kHeadNameBytesMax = 128;

absl::Status CheckSessionId(const std::string& session_id);
// Empty or a session id.
absl::Status CheckSessionPageToken(const std::string& page_token);
// The session of a syntactically valid id, if it is the caller's tenant's.
absl::StatusOr<std::shared_ptr<SessionEntry>> FindSession(const ServerCore& core, const Call& call,
                                                          const std::string& session_id);

absl::Status CheckRequestId(const std::string& request_id);
// Subject labels and display names: at most 128 bytes.
absl::Status CheckLabel(absl::string_view field, const std::string& label);
absl::Status CheckNonce(const std::string& nonce);
absl::Status CheckIntegerRange(absl::string_view field, int64_t value, int64_t min, int64_t max);
absl::Status CheckRange(absl::string_view field, double value, double min, double max);
absl::Status CheckVocabIds(absl::string_view field, const v1::VocabIds& ids, const Model& model);

// The vocab_ids of a prompt or input; at least one, at most max_tokens. INVALID_ARGUMENT, reason PROMPT_TOO_LONG.
absl::StatusOr<std::vector<int32_t>> ReadContent(absl::string_view field,
                                                 const v1::Content& content, const Model& model,
                                                 int64_t max_tokens);

// The key of a request in a RequestTable: its id and a keyed hash of its name and its other fields.
RequestKey MakeRequestKey(const google::protobuf::Message& request, const std::string& request_id);

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_VALIDATION_H_
