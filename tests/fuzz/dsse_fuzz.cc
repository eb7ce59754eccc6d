// Goal: envelopes from outside never crash; an accepted one means the same when written by us.
// Method: parse, write, parse, compare.
#include "audit/certificate/dsse.h"
#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace lethe::fuzz {

void FuzzDsse(absl::string_view bytes) {
  const auto envelope = audit::ParseEnvelope(bytes);
  if (!envelope.ok()) return;
  const auto again = audit::ParseEnvelope(audit::WriteEnvelope(*envelope));
  LETHE_CHECK(again.ok());
  LETHE_CHECK(again->payload == envelope->payload);
  LETHE_CHECK(again->payload_type == envelope->payload_type);
  LETHE_CHECK(again->key_id == envelope->key_id);
  LETHE_CHECK(again->signature == envelope->signature);
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzDsse)
