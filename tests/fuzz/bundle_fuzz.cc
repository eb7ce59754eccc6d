// Goal: proof bundles from outside never crash parser, hashes or proof, and what is accepted has
// one text.
// Method: parse, write, compare; then the head's part of the digest and its bounds.
#include "audit/certificate/bundle.h"
#include "audit/certificate/head_proof.h"
#include "kernels/base/byte_io.h"
#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace lethe::fuzz {

void FuzzBundle(absl::string_view bytes) {
  const auto bundle = audit::ParseBundle(bytes);
  if (!bundle.ok()) return;
  const auto written = audit::WriteBundle(*bundle);
  LETHE_CHECK(written.ok() && *written == bytes);
  for (const audit::BundleHead& head : bundle->heads) {
    audit::HeadSupportState(head);
    audit::ProveHead(head).status().IgnoreError();
    ByteWriter memory;
    if (head.tail.has_value()) audit::AppendHeadMemory(head, &memory);
    audit::WitnessHash(head.witness);
  }
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzBundle)
