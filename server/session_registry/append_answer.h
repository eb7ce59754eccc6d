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

#include "absl/types/span.h"

#include "server/session/forget.h"
#include "server/session_registry/request_table.h"

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
  const AppendReceipt receipt;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_APPEND_ANSWER_H_
