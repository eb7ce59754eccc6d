// Goal: proof files from outside never crash, and what is accepted has one text.
// Method: parse, write, compare.
#include "audit/log/tlog_proof.h"
#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace lethe::fuzz {

void FuzzTlogProof(absl::string_view bytes) {
  if (const auto proof = audit::ParseTlogProof(bytes); proof.ok()) {
    LETHE_CHECK(audit::WriteTlogProof(*proof) == bytes);
  }
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzTlogProof)
