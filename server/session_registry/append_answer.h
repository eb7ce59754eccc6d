// AppendReceipt, AppendAnswer: what a call that brought in inputs answered, for its repeats.
//
// Equation:  none.
// Shapes:    none.
// Units:     token_ids.
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_SESSION_REGISTRY_APPEND_ANSWER_H_
#define LETHE_SERVER_SESSION_REGISTRY_APPEND_ANSWER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"
#include "server/session/forget.h"
#include "server/session_registry/request_table.h"
#include "server/session_registry/saved_fields.h"

namespace lethe {

struct AppendReceipt {
  TokenIdRange token_ids;
  int64_t num_inputs = 0;  // retained after the call
};

class AppendAnswer : public StoredAnswer {
 public:
  explicit AppendAnswer(const AppendReceipt& value) : receipt(value) {}
  bool BroughtIn(absl::Span<const TokenIdRange> token_ids) const override {
    return std::any_of(token_ids.begin(), token_ids.end(), [&](const TokenIdRange& range) {
      return range.first < receipt.token_ids.end && receipt.token_ids.first < range.end;
    });
  }
  std::string Encode(bool /*keep_openings*/) const override {
    ByteWriter writer;
    writer.U64(static_cast<uint64_t>(AnswerKind::kAppend));
    WriteRanges({receipt.token_ids}, &writer);
    writer.I64(receipt.num_inputs);
    return writer.Take();
  }
  // What follows the kind.
  static absl::StatusOr<std::shared_ptr<StoredAnswer>> Decode(ByteReader* reader) {
    std::vector<TokenIdRange> ranges;
    AppendReceipt stored;
    LETHE_RETURN_IF_ERROR(ReadRanges(reader, &ranges));
    LETHE_RETURN_IF_ERROR(reader->I64(&stored.num_inputs));
    if (ranges.size() != 1) return absl::DataLossError("stored answer: want one range");
    stored.token_ids = ranges[0];
    return std::make_shared<AppendAnswer>(stored);
  }
  const AppendReceipt receipt;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_APPEND_ANSWER_H_
